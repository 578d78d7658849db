# SPDX-License-Identifier: Apache-2.0
"""What a running relay deletes and forgets by itself."""
import subprocess

from conftest import wait_until


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


def X2_without_retention_a_message_goes_when_it_is_delivered(postroom):
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
