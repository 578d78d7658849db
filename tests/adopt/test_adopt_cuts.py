# SPDX-License-Identifier: Apache-2.0
"""The session of adopt is cut at each of its statements, before or after the server gets it. Nothing is lost or sent twice."""
import pytest

from adopt.cutting import CuttingProxy
from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, shared, sql, template, unmigrated  # noqa: F401  fixtures
from pgsql.server import SOAK

LAYOUT = '''(id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text, payload jsonb DEFAULT '{}',
    created_at timestamptz DEFAULT clock_timestamp(), status text NOT NULL DEFAULT 'pending')'''
MAPPING = ('--column', 'done=status:sent', '--column', 'open=pending')
LIMIT = 400
# The short form cuts at every fifth statement.
STEP = 1 if SOAK else 5


def wait_for_end(place, database):  # noqa: F811
    wait_until(lambda: not place.backends(database), 'the end of the session')


def run_cut(place, database, postroom, number, after, *args):  # noqa: F811
    """Whether the session was cut."""
    proxy = CuttingProxy(place, number, after)
    try:
        result = postroom('-d', place.url(database, host=proxy.home), *args)
        assert (result.code == 0) != proxy.cut or after, result
        wait_for_end(place, database)
        return proxy.cut
    finally:
        proxy.close()


def create(sql, name):  # noqa: F811
    sql(f'CREATE TABLE {name} {LAYOUT}')
    sql(f"INSERT INTO {name} (topic) SELECT 'old' FROM generate_series(1, 8)")


def dispatch(sql, name):  # noqa: F811
    """What the old dispatcher sends in one pass."""
    return {id for id, in sql(f"""UPDATE {name} SET status = 'sent' WHERE id IN (SELECT id FROM {name} WHERE status = 'pending'
        ORDER BY created_at LIMIT 2 FOR UPDATE SKIP LOCKED) RETURNING id::text""")}


def ours(sql, name):  # noqa: F811
    return {id for id, in sql(f'SELECT m.id::text FROM postroom_messages AS m JOIN {name} AS t ON t.id = m.id')}


@pytest.mark.parametrize('after', [False, True], ids=['before', 'after'])
def U2_adopt_cut_at_any_statement_loses_and_repeats_nothing(postroom, place, database, sql, after):  # noqa: F811
    for number in range(3 if after else 1, LIMIT, STEP):
        name = f'outbox_{number}'
        create(sql, name)
        cut = run_cut(place, database, postroom, number, after, 'adopt', name, '--yes', '--chunk', '3', *MAPPING)
        sql(f"INSERT INTO {name} (topic) VALUES ('new'), ('new')")
        sent = dispatch(sql, name)
        postroom.ok('adopt', name, '--yes', *MAPPING)
        sql(f"INSERT INTO {name} (topic) VALUES ('newer')")
        sent |= dispatch(sql, name)
        assert sql(f"SELECT count(*), count(*) FILTER (WHERE status = 'sent') FROM {name}") == [(11, 11)], number
        assert not sent & ours(sql, name), f'two senders: cut {number}'
        assert len(sent) + len(ours(sql, name)) == 11, f'no sender: cut {number}'
        if not cut:
            break
    assert 20 < number < LIMIT - STEP


@pytest.mark.parametrize('after', [False, True], ids=['before', 'after'])
def U2_undo_cut_at_any_statement_loses_and_repeats_nothing(postroom, place, database, sql, after):  # noqa: F811
    for number in range(3 if after else 1, LIMIT, STEP):
        name = f'outbox_{number}'
        create(sql, name)
        postroom.ok('adopt', name, '--yes', *MAPPING)
        cut = run_cut(place, database, postroom, number, after, 'adopt', name, '--undo', '--yes', '--chunk', '3')
        sql(f"INSERT INTO {name} (topic) VALUES ('new'), ('new')")
        sent = dispatch(sql, name)
        if sql('SELECT count(*) FROM postroom_adopted WHERE table_name = %s', f'public.{name}')[0][0]:
            postroom.ok('adopt', name, '--undo', '--yes')
        while more := dispatch(sql, name):
            assert not more & sent
            sent |= more
        assert not sent & ours(sql, name), f'two senders: cut {number}'
        assert len(sent) + len(ours(sql, name)) == 10, f'no sender: cut {number}'
        assert sql("SELECT count(*) FROM pg_trigger WHERE tgrelid = %s::regclass", name) == [(0,)]
        if not cut:
            break
    assert 20 < number < LIMIT - STEP


def U2_keys_cut_at_any_statement_are_completed(postroom, place, database, sql):  # noqa: F811
    for number in range(2, LIMIT, STEP):
        name = f'outbox_{number}'
        create(sql, name)
        options = ('adopt', name, '--keys', '--require-keys', '--yes', '--chunk', '3')
        cut = run_cut(place, database, postroom, number, True, *options)
        kept = dict(sql(f'SELECT id, to_jsonb(t)->>%s FROM {name} AS t', 'idempotency_key'))
        postroom.ok(*options)
        keys = dict(sql(f'SELECT id, idempotency_key::text FROM {name}'))
        assert all(kept[id] in (None, key) for id, key in keys.items()), 'a key has changed'
        assert len(set(keys.values())) == 8 and None not in keys.values()
        assert sql('SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = %s::regclass', name) == [(2, True)]
        assert sql("SELECT attnotnull FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'idempotency_key'", name) == [(True,)]
        assert sql('SELECT count(*) FROM pg_constraint WHERE conrelid = %s::regclass', name) == [(1,)]
        if not cut:
            break
    assert 15 < number < LIMIT - STEP
