# SPDX-License-Identifier: Apache-2.0
"""Events of a broker on their way into the inbox, when that takes long."""
from conftest import wait_until
from servers.test_redis import redis  # noqa: F401 (a fixture)

STATEMENT = "INSERT INTO books SELECT $2 FROM pg_sleep(($1->>'pause')::float8)"
ADD = """for n = 1, ARGV[1] do
redis.call('XADD', 'orders', '*', 'id', ARGV[2] .. n, 'payload', '{"pause": ' .. ARGV[3] .. '}')
end"""


def A5_events_that_take_several_leases_stay_with_who_has_them(postroom, sql, redis, tmp_path):
    def start(name):
        with open(tmp_path / name, 'wb') as log:
            return postroom.start('consume', '--handler', 'books', '--from', f'redis://127.0.0.1:{redis.port}/orders',
                                  '--sql', STATEMENT, '--workers', '1', '--lease', '6s', stdout=log, stderr=log)

    def booked():
        return int(sql('SELECT count(*) FROM books')[0][0])

    def pending():
        return redis.ask('XPENDING', 'orders', 'books')[0]

    sql('CREATE TABLE books (id text)')
    consumers = [start('first')]
    # What went fast so far tells nothing about what comes.
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
