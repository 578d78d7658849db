# SPDX-License-Identifier: Apache-2.0
"""A running relay deletes delivered messages, dedupe keys and events after their retention."""
import subprocess

from conftest import wait_until
from relay_process import enqueue_many


def enqueue(postroom):
    return postroom.ok('enqueue', 't', '{}', '--dedupe-key', 'order-1', '--json').object


def X2_delivered_messages_are_deleted_after_their_retention(postroom):
    kept = postroom.enqueue('kept')
    postroom.ok('relay', '--drain', '--to', 'null:')
    postroom.enqueue('old')
    relay = postroom.start('relay', '--retention', '1ms', '--topic', 'old', '--to', 'null:',
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: [row['id'] for row in postroom.rows()] == [kept], 'the old one to go')
    relay.terminate()
    assert relay.wait() == 0


def X2_without_retention_delivered_message_is_deleted_immediately(postroom):
    first = enqueue(postroom)
    postroom.ok('relay', '--drain', '--retention', '0', '--to', 'null:')
    assert postroom.rows() == []
    assert enqueue(postroom) == {**first, 'duplicate': True}


def E3_a_key_outlives_its_message_for_the_dedupe_retention(postroom):
    first = enqueue(postroom)
    relay = postroom.start('relay', '--retention', '0', '--to', 'null:', stderr=subprocess.DEVNULL)
    wait_until(lambda: postroom.rows() == [], 'the message to go')
    assert enqueue(postroom) == {**first, 'duplicate': True}
    relay.terminate()
    assert relay.wait() == 0
    relay = postroom.start('relay', '--dedupe-retention', '1ms', '--retention', 'never', '--to', 'null:',
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: not enqueue(postroom)['duplicate'], 'the key to be forgotten')
    relay.terminate()
    assert relay.wait() == 0


def X2_long_purge_does_not_delay_other_maintenance(postroom, sql, tmp_path):
    """Each row takes some milliseconds to delete, so that all of them take far longer than a round."""
    enqueue_many(postroom, 20_000)
    postroom.ok('relay', '--drain', '--to', 'null:', '--log-level', 'warn')
    sql('CREATE TRIGGER slow BEFORE DELETE ON postroom_outbox BEGIN'
        ' SELECT length(hex(randomblob(300000))); END')
    postroom.enqueue('lost')
    (tmp_path / 'c.yaml').write_text('retention: { delivered: 1ms }\n'
                                     'sinks: { a: { url: "null:" } }\n'
                                     'routes: [ { topic: t, sink: a } ]\n')
    with open(tmp_path / 'log', 'wb') as log:
        relay = postroom.start('relay', '-c', 'c.yaml', stderr=log)
    wait_until(lambda: 'OUTBOX_UNROUTED' in (tmp_path / 'log').read_text(), 'a count of unrouted messages')
    left = postroom.stats()['delivered']
    assert 0 < left < 20_000
    wait_until(lambda: postroom.stats()['delivered'] < left, 'the purge to go on')
    relay.kill()
    relay.wait()
