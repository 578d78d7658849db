# SPDX-License-Identifier: Apache-2.0
"""Timeouts of a role or a database are not those of our own sessions."""
from sink_files import messages_in
from pgsql.test_pgbouncer import bouncer  # noqa: F401 pylint: disable=unused-import

TIMEOUTS = ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout']

SLOW_SETTLE = """
CREATE TABLE seen (name text, setting text);
CREATE FUNCTION settle_slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen SELECT name, current_setting(name, true) FROM unnest(ARRAY['%s']) AS name;
    PERFORM pg_sleep(0.3);
    RETURN NEW;
END $$;
CREATE TRIGGER settle_slowly BEFORE UPDATE ON postroom_outbox FOR EACH ROW
WHEN (NEW.status = 'delivered') EXECUTE FUNCTION settle_slowly()
""" % "', '".join(TIMEOUTS)


def enqueue_and_limit(postroom, database, sql):
    """From now on a settle takes longer than the database's timeouts allow new sessions; a claim does not. Gives the message's id."""
    id = postroom.enqueue()  # a slow moment would exceed the timeouts
    sql(SLOW_SETTLE)
    for name in TIMEOUTS:
        if sql('SELECT current_setting(%s, true)', name) != [(None,)]:
            sql(f"ALTER DATABASE {database} SET {name} = '150ms'")
    return id


def read_without_timeouts(place, database, statement):
    known = [name for name, in place.sql('postgres', 'SELECT name FROM pg_settings') if name in TIMEOUTS]
    return place.sql(database, statement, options=' '.join(f'-c {name}=0' for name in known))


def check_delivered_once(postroom, place, database, tmp_path, id):
    postroom.ok('relay', '--drain', '--to', 'file:out', '--workers', '1', '--lease', '10s', '--max-attempts', '2')
    assert read_without_timeouts(place, database, 'SELECT id::text, status FROM postroom_outbox') == [(id, 'delivered')]
    assert len(messages_in(tmp_path / 'out')) == 1
    assert read_without_timeouts(place, database, 'SELECT DISTINCT setting FROM seen WHERE setting IS NOT NULL') == [('0',)]


def D5_timeouts_of_a_database_do_not_cancel_settles(postroom, place, database, sql, tmp_path):
    id = enqueue_and_limit(postroom, database, sql)
    check_delivered_once(postroom, place, database, tmp_path, id)


def D5_timeouts_do_not_cancel_settles_behind_a_pooler(bouncer, postroom, place, database, sql,  # noqa: F811 pylint: disable=redefined-outer-name
                                                      tmp_path):
    id = enqueue_and_limit(postroom, database, sql)
    bouncer.renew_sessions()
    check_delivered_once(postroom, place, database, tmp_path, id)
    # The next client of the pooled session finds the database's own setting.
    assert bouncer.sql(database, 'SHOW statement_timeout', port=6432) == [('150ms',)]


def D5_timeouts_do_not_cancel_loading_behind_a_pooler(bouncer, postroom, place, database, sql):  # noqa: F811 pylint: disable=redefined-outer-name
    """The server needs longer to print a large payload than the database's timeout allows."""
    sql("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', "
        "('[' || repeat('1e131071,', 510) || '0]')::jsonb)")
    sql(f"ALTER DATABASE {database} SET statement_timeout = '100ms'")
    bouncer.renew_sessions()
    postroom.ok('relay', '--drain', '--to', 'exec:cat > /dev/null', '--workers', '1', '--max-attempts', '2',
                '--base-delay', '10ms')
    assert read_without_timeouts(place, database, 'SELECT status FROM postroom_outbox') == [('delivered',)]
