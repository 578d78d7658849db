# SPDX-License-Identifier: Apache-2.0
"""Events on their way into the inbox, when that takes long or the table does not want them."""
import subprocess

import pytest

from conftest import wait_until
from pgsql.server import SOAK
from servers.test_redis import redis  # noqa: F401 (a fixture)

STATEMENT = "INSERT INTO books SELECT $2 FROM pg_sleep(($1->>'pause')::float8)"
ADD = """for n = 1, ARGV[1] do
redis.call('XADD', 'orders', '*', 'id', ARGV[2] .. n, 'pause', ARGV[3])
end"""


def A5_events_longer_than_several_leases_stay_with_their_consumer(postroom, sql, redis, tmp_path):
    def start(name):
        with open(tmp_path / name, 'wb') as log:
            return postroom.start('consume', '--handler', 'books', '--from', f'redis://127.0.0.1:{redis.port}/orders',
                                  '--id-path', 'id', '--sql', STATEMENT, '--workers', '1', '--lease', '6s', stdout=log, stderr=log)

    def booked():
        return int(sql('SELECT count(*) FROM books')[0][0])

    def pending():
        return redis.ask('XPENDING', 'orders', 'books')[0]

    sql('CREATE TABLE books (id text)')
    consumers = [start('first')]
    # Fast events so far do not predict the next ones.
    redis.ask('EVAL', ADD, '0', '200', 'fast', '0')
    wait_until(lambda: booked() == 200, 'the fast ones')
    redis.ask('EVAL', ADD, '0', '12', 'slow', '1')
    wait_until(lambda: pending() == 12, 'all of them in one hand')
    consumers.append(start('second'))
    wait_until(lambda: booked() == 212 and pending() == 0, 'the slow ones')
    for consumer in consumers:
        consumer.terminate()
        assert consumer.wait() == 0
    first, second = [(tmp_path / name).read_text() for name in ('first', 'second')]
    assert 'SKIP_PROCESSED' not in first + second and 'STORE_TROUBLE' not in first


def D5_database_outage_pauses_intake_and_loses_nothing(server, postroom, sql, redis, tmp_path):
    log = tmp_path / 'log'
    sql('CREATE TABLE books (id text)')
    with open(log, 'wb') as file:
        consumer = postroom.start('consume', '--handler', 'books', '--from', f'redis://127.0.0.1:{redis.port}/orders',
                                  '--id-path', 'id', '--sql', STATEMENT, stdout=file, stderr=file)
    redis.ask('EVAL', ADD, '0', '10', 'before', '0')
    wait_until(lambda: int(sql('SELECT count(*) FROM books')[0][0]) == 10, 'the first events')
    server.stop()
    redis.ask('EVAL', ADD, '0', '10', 'meanwhile', '0')
    wait_until(lambda: 'INBOX_STORE_TROUBLE' in log.read_text() and
               redis.ask('XPENDING', 'orders', 'books')[0] > 0, 'events that cannot be inserted')
    server.start()
    wait_until(lambda: redis.ask('XPENDING', 'orders', 'books')[0] == 0 and
               int(sql('SELECT count(*) FROM books')[0][0]) == 20, 'all events')
    assert int(sql('SELECT count(DISTINCT id) FROM books')[0][0]) == 20
    assert {row for row, in sql('SELECT DISTINCT attempts FROM postroom_inbox')} == {0}
    consumer.terminate()
    assert consumer.wait() == 0


@pytest.mark.parametrize('handler, attempts', [(('--sql', 'INSERT INTO books VALUES ($2)'), 1),
                                               (('--exec', 'true'), 0)], ids=['statement', 'command'])
def N2_event_with_refused_payload_is_dead_and_stored_byte_for_byte(postroom, sql, handler, attempts):
    sql('CREATE TABLE books (id text)')
    sql("ALTER TABLE postroom_inbox ADD CONSTRAINT picky CHECK (payload ->> 'n' <> '2' AND headers ->> 'n' <> '2')")
    lines = ''.join('{"id": "e%d", "key": "k", "headers": {"n": "%d"}, "payload": {"n":  %d}}\n' % (n, n, n)
                    for n in (1, 2, 3))
    log = postroom.ok('consume', '--handler', 'books', '--from', '-', '--drain', '--log-level', 'info', *handler,
                      input=lines).err
    assert sql("SELECT id FROM postroom_inbox WHERE status = 'completed' ORDER BY id") == [('e1',), ('e3',)]
    (error, *row), = sql("""SELECT last_error, status, attempts, topic, key, headers, payload,
                            convert_from(body, 'UTF8') FROM postroom_inbox WHERE id = 'e2'""")
    assert row == ['dead', attempts, 'books', 'k', {}, None, '{"n":  2}'] and 'picky' in error
    assert log.count('INBOX_WORKER_DISPATCH_FAIL') == attempts and 'INBOX_STORE_TROUBLE' not in log
    assert f'INBOX_WORKER_DEAD id=e2 key=e2 attempts={attempts} error=' in log


if SOAK:  # it takes half a minute
    def D5_drain_gives_up_on_database_outage(server, postroom, sql):
        sql('CREATE TABLE books (id text)')
        consumer = postroom.start('consume', '--handler', 'books', '--from', '-', '--drain', '--sql',
                                  'INSERT INTO books VALUES ($2)', '--log-level', 'error', stdin=subprocess.PIPE)
        consumer.stdin.write(b'{"id": "e1", "payload": {}}\n')
        consumer.stdin.flush()
        wait_until(lambda: sql('SELECT id FROM books') == [('e1',)], 'the first event')
        server.stop()
        _, error = consumer.communicate(b'{"id": "e2", "payload": {}}\n')
        assert consumer.returncode == 1 and error.startswith(b'postroom: '), error
        server.start()

    def D5_drain_gives_up_on_database_that_is_down(server, postroom):
        server.stop()
        result = postroom('consume', '--handler', 'books', '--from', '-', '--drain', '--exec', 'true',
                          '--log-level', 'error')
        assert result.code == 1 and len(result.err.splitlines()) == 1, result
        server.start()
