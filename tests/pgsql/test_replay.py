# SPDX-License-Identifier: Apache-2.0
"""A broker delivers events once more after the inbox has purged them: see consume/test_replay.py."""
import time

from pgsql.test_roles import SCHEMA, roles  # noqa: F401 (a fixture)
from servers.launch import Redis

DAY_MS = 86_400_000


def add(redis, age_days, *numbers):
    for n in numbers:
        assert redis.ask('XADD', 'orders', f'{int(time.time() * 1000) - age_days * DAY_MS}-{n}', 'n', str(n))


def N4_worker_refuses_purged_events_until_replay_is_accepted(roles, sql, tmp_path):
    redis = Redis(tmp_path)
    redis.start()
    worker = roles['worker']
    sql(f'CREATE TABLE "{SCHEMA}".ledger (n int)')
    sql(f'GRANT INSERT ON "{SCHEMA}".ledger TO "{worker.name}"')

    def consume(*more):
        return worker('consume', '--handler', 'h', '--from', f'redis://127.0.0.1:{redis.port}/orders', '--id-path', 'n',
                      '--drain', '--sql', f"""INSERT INTO "{SCHEMA}".ledger SELECT ($1 ->> 'n')::int""", *more)

    def booked():
        return [row[0] for row in sql(f'SELECT n FROM "{SCHEMA}".ledger ORDER BY n')]

    add(redis, 40, 1, 2)
    assert consume().code == 0
    # The relay of the same database purges the inbox.
    roles['relay'].ok('inbox', 'purge', '--status', 'completed', '--older-than', '0s', '--yes')
    add(redis, 39, 3)
    assert consume().code == 0
    assert booked() == [1, 2, 3]
    redis.ask('XGROUP', 'DESTROY', 'orders', 'h')
    refused = consume()
    assert refused.code == 1 and 'INBOX_SOURCE_REPLAY' in refused.err, refused
    assert booked() == [1, 2, 3]
    assert consume('--accept-replay').code == 0
    assert booked() == [1, 1, 2, 2, 3]
    assert sql(f'SELECT source, max(position) FROM "{SCHEMA}".postroom_sources GROUP BY source')[0][0] == 'redis:orders'
    redis.end()


def N4_positions_of_past_periods_are_thinned_out(roles, sql, tmp_path):
    redis = Redis(tmp_path)
    redis.start()
    worker = roles['worker']
    for day in range(1, 6):
        sql(f'INSERT INTO "{SCHEMA}".postroom_sources VALUES (%s, %s, now() - %s * interval \'1 day\', %s)',
            'h', 'redis:orders', day, f'{9 - day:020}-{0:020}')
    sql(f'INSERT INTO "{SCHEMA}".postroom_inbox_purged VALUES (%s, now() - interval \'2.5 days\')', 'h')
    add(redis, 0, 1)
    worker.ok('consume', '--handler', 'h', '--from', f'redis://127.0.0.1:{redis.port}/orders', '--id-path', 'n',
              '--drain', '--exec', 'true')
    days = sql(f'SELECT round(extract(epoch FROM now() - started_at) / 86400) FROM "{SCHEMA}".postroom_sources '
               'WHERE position LIKE \'0000000000000000000%%\' ORDER BY 1')
    assert [int(day[0]) for day in days] == [1, 2, 3]
    redis.end()
