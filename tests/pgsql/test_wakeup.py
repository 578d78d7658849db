# SPDX-License-Identifier: Apache-2.0
"""Waking a relay that sleeps, and not ringing for one that works (D3)."""
import os
import signal
import subprocess

from conftest import wait_until
from sink_files import messages_in, words_in

# It would look by itself only after hours.
SLEEPY = ['--poll-interval', '8h', '--lease', '24h', '--workers', '1']

ASLEEP = ('SELECT to_timestamp(last_value / 1000.0) FROM {schema}postroom_notify_until '
          "WHERE to_timestamp(last_value / 1000.0) > clock_timestamp() + interval '{ahead}'")


def asleep_until(sql, schema='', ahead='500ms'):
    """The time that a sleeper has announced, once it is so far ahead."""
    return wait_until(lambda: sql(ASLEEP.format(schema=schema, ahead=ahead)), 'a relay to sleep')[0][0]


class Listener:
    """Receives every notification of the outbox."""

    def __init__(self, place, database):
        self.connection = place.connect(database)
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT 'postroom_' || 'postroom_outbox'::regclass::oid")
            self.channel, = cursor.fetchone()
            cursor.execute(f'LISTEN {self.channel}')

    def received(self):
        """The number of notifications since the last call."""
        with self.connection.cursor() as cursor:
            # Notifications come with the answer to whatever is asked.
            cursor.execute('SELECT 1')
        count = len(self.connection.notifies)
        self.connection.notifies.clear()
        return count


def D3_every_entry_point_wakes_a_sleeping_relay(unmigrated, sql, tmp_path):
    ways = {
        'by_insert': lambda: sql("INSERT INTO by_insert.postroom_outbox (topic, payload) "
                                 "VALUES ('t', '1')"),
        'by_function': lambda: sql("SELECT by_function.postroom_enqueue('t', '2')"),
        'by_program': lambda: unmigrated.ok('enqueue', 't', '3', '--schema', 'by_program'),
    }
    for schema in ways:
        unmigrated.ok('migrate', '--schema', schema)
        unmigrated.start('relay', '--to', f'file:{schema}', '--schema', schema, *SLEEPY, '--log-level',
                         'warn')
    # A relay's sleeps grow to seconds when nothing happens for as long.
    for schema in ways:
        asleep_until(sql, f'{schema}.', '10s')
    for schema, enqueue in ways.items():
        until = asleep_until(sql, f'{schema}.', '10s')
        enqueue()
        delivered, = wait_until(lambda: sql(f'SELECT delivered_at FROM {schema}.postroom_outbox '
                                            'WHERE delivered_at IS NOT NULL'), 'the delivery')
        assert delivered[0] < until, f'{schema}: it slept till its time'
        assert len(messages_in(tmp_path / schema)) == 1


def D3_late_commit_delays_its_message_only_until_it_commits(postroom, relay, place, database, sql,
                                                               tmp_path):
    """The insert notifies no relay, for none slept; the commit does not notify either."""
    connection = place.connect(database)
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    relay('--to', 'file:out', *SLEEPY)
    asleep_until(sql, ahead='1s')
    connection.commit()
    connection.close()
    wait_until(lambda: messages_in(tmp_path / 'out'), 'the message')


def enqueue_every_way(postroom, sql):
    postroom.enqueue()
    sql("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    sql("SELECT postroom_enqueue('t', '2')")


def D3_producers_do_not_notify_busy_relays(postroom, relay, place, database, sql, tmp_path):
    """Both workers wait at a gate with a message in flight."""
    listener = Listener(place, database)
    os.mkfifo(tmp_path / 'gate')
    for _ in range(2):
        postroom.enqueue()
    working = relay('--to', 'exec:echo $POSTROOM_ID >> begun; read word < gate; true', '--batch-size',
                    '1', '--lease', '1h', '--publish-timeout', '20m')
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 2, 'both workers to have work')
    # The one that came second may have dozed for a moment; that announcement must have run out.
    wait_until(lambda: sql('SELECT last_value < extract(epoch FROM clock_timestamp()) * 1000 '
                           'FROM postroom_notify_until') == [(True,)], 'the announcements to run out')
    listener.received()
    for _ in range(5):
        enqueue_every_way(postroom, sql)
    assert listener.received() == 0
    # Notifications do work: producers notify when the relay sleeps.
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 100)
    asleep_until(sql)
    enqueue_every_way(postroom, sql)
    assert listener.received() > 0
    working.process.kill()
    os.close(gate)


def D3_producers_do_not_notify_while_backlog_is_processed(postroom, place, database, sql):
    """The relay is never out of work before the last of these is committed: it delivers only what the test reads."""
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', to_jsonb(n) "
        'FROM generate_series(1, 100000) n')
    listener = Listener(place, database)
    relay = postroom.start('relay', '--to', 'stdout:', '--batch-size', '50', '--lease', '1h', '--publish-timeout', '20m',
                           stderr=subprocess.DEVNULL)
    assert relay.stdout.readline()
    wait_until(lambda: sql("SELECT 1 FROM postroom_outbox WHERE status = 'delivered' LIMIT 1"),
               'the relay to work')
    before = sql('SELECT last_value FROM postroom_notify_until')
    producer = place.connect(database)
    with producer.cursor() as cursor:
        for n in range(200):
            cursor.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', %s)", (str(n),))
            for _ in range(100):
                assert relay.stdout.readline()
    producer.close()
    received = listener.received()
    assert sql("SELECT count(*) > 0 FROM postroom_outbox WHERE status = 'pending'") == [(True,)], (
        'the backlog was too small for this test')
    assert received == 0
    assert sql('SELECT last_value FROM postroom_notify_until') == before


def D3_producers_do_not_notify_relay_killed_while_sleeping(postroom, relay, place, database, sql):
    listener = Listener(place, database)
    sleeper = relay('--to', 'null:', *SLEEPY)
    asleep_until(sql)
    sleeper.process.send_signal(signal.SIGKILL)
    sleeper.process.wait()
    wait_until(lambda: not place.backends(database), 'its sessions to end')
    wait_until(lambda: sql('SELECT last_value < extract(epoch FROM clock_timestamp()) * 1000 '
                           'FROM postroom_notify_until') == [(True,)], 'its announcement to run out')
    listener.received()
    enqueue_every_way(postroom, sql)
    assert listener.received() == 0


def D3_sleep_ends_when_a_message_becomes_due(postroom, relay, tmp_path):
    """Due times need no notification: the relay knows what is due next."""
    relay('--to', 'file:out', *SLEEPY)
    postroom.enqueue('t', '1', '--delay', '3s')
    wait_until(lambda: messages_in(tmp_path / 'out'), 'the message')
