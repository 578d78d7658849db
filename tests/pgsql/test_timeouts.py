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


def limit_settles(place, database, sql):
    """Every settle takes longer than the database's timeouts allow; claims do not."""
    sql(SLOW_SETTLE)
    for name in TIMEOUTS:
        if sql('SELECT current_setting(%s, true)', name) != [(None,)]:
            sql(f"ALTER DATABASE {database} SET {name} = '150ms'")
    place.terminate(database)


def check_delivered_once(postroom, place, database, tmp_path):
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--to', 'file:out', '--workers', '1', '--lease', '10s', '--max-attempts', '2')
    assert postroom.show(id)['status'] == 'delivered'
    assert len(messages_in(tmp_path / 'out')) == 1
    # Without the timeouts itself, which a slow moment would exceed.
    known = [name for name, in place.sql('postgres', 'SELECT name FROM pg_settings') if name in TIMEOUTS]
    assert place.sql(database, 'SELECT DISTINCT setting FROM seen WHERE setting IS NOT NULL',
                     options=' '.join(f'-c {name}=0' for name in known)) == [('0',)]


def D5_timeouts_of_a_database_do_not_cancel_settles(postroom, place, database, sql, tmp_path):
    limit_settles(place, database, sql)
    check_delivered_once(postroom, place, database, tmp_path)


def D5_timeouts_do_not_cancel_settles_behind_a_pooler(bouncer, postroom, place, database, sql,  # noqa: F811 pylint: disable=redefined-outer-name,unused-argument
                                                      tmp_path):
    limit_settles(place, database, sql)
    check_delivered_once(postroom, place, database, tmp_path)
    # The next client of the pooled session finds the database's own setting.
    assert bouncer.sql(database, 'SHOW statement_timeout', port=6432) == [('150ms',)]


def D5_timeouts_do_not_cancel_loading_behind_a_pooler(bouncer, postroom, place, database, sql):  # noqa: F811 pylint: disable=redefined-outer-name,unused-argument
    """The server needs longer to print a large payload than the database's timeout allows."""
    sql("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', "
        "('[' || repeat('1e131071,', 510) || '0]')::jsonb)")
    sql(f"ALTER DATABASE {database} SET statement_timeout = '100ms'")
    place.terminate(database)
    postroom.ok('relay', '--drain', '--to', 'exec:cat > /dev/null', '--workers', '1', '--max-attempts', '2',
                '--base-delay', '10ms')
    assert postroom.stats()['delivered'] == 1
