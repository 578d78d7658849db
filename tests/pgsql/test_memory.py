# SPDX-License-Identifier: Apache-2.0
"""How much memory a relay needs for payloads that print larger than they are stored."""
import psycopg2
import pytest

from databases.test_memory import deliver

both_leases = pytest.mark.parametrize('lease', ['row', 'lane'])


@both_leases
@pytest.mark.parametrize('keyed', [False, True])
def D8_relay_memory_is_bounded_by_printed_size_of_payloads(postroom, sql, lease, keyed):
    """27 KiB of rows print to 220 MB; the largest of them to 64 MiB."""
    postroom.ok('lease', lease)
    key = "'k' || n % 3" if keyed else 'NULL'
    sql("INSERT INTO postroom_outbox (topic, payload, key) SELECT 'long', "
        f"('[' || repeat('1e131071,', 510) || '0]')::jsonb, {key} FROM generate_series(1, 3) AS n")
    sql("INSERT INTO postroom_outbox (topic, payload, key) SELECT 'long', "
        f"'[1e131071]', {key} FROM generate_series(1, 200) AS n")
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 'small', '{}' "
        'FROM generate_series(1, 50)')
    counts = deliver(postroom, 64 << 20, '--to', 'exec:cat > /dev/null')
    assert counts['delivered'] == 253, counts


@both_leases
def D8_rows_from_before_the_limit_do_not_stop_the_relay(postroom, sql, lease):
    """Rows that no limit has checked: some print to 200 MiB, one to more than a server can print."""
    postroom.ok('lease', lease)
    sql('ALTER DOMAIN postroom_payload DROP CONSTRAINT "payload: 64 MiB at most when printed"')
    for count, numbers in ((2, 1600), (1, 20000)):
        sql("INSERT INTO postroom_outbox (topic, payload) SELECT 'long', "
            f"('[' || repeat('1e131071,', {numbers}) || '0]')::jsonb FROM generate_series(1, {count})")
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 'small', '{}' "
        'FROM generate_series(1, 50)')
    counts = deliver(postroom, 200 << 20, '--to', 'exec:cat > /dev/null', '--max-attempts',
                              2, '--base-delay', '10ms')
    assert (counts['delivered'], counts['dead']) == (52, 1), counts


def E5_value_from_another_table_is_checked_as_it_is_printed(postroom, sql):
    """It comes compressed, and its stored size says nothing."""
    sql('CREATE TABLE other (payload jsonb)')
    sql("INSERT INTO other SELECT ('[' || repeat('1e131071,', 2000) || '0]')::jsonb")
    with pytest.raises(psycopg2.errors.CheckViolation, match='64 MiB at most when printed'):
        sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', payload FROM other")
    with pytest.raises(psycopg2.errors.CheckViolation, match='64 MiB at most when printed'):
        sql("INSERT INTO postroom_inbox (id, handler_name, payload) SELECT 'i', 'h', payload FROM other")
    with pytest.raises(psycopg2.errors.CheckViolation, match='64 MiB at most when printed'):
        sql("INSERT INTO postroom_inbox (id, handler_name, checkpoint) SELECT 'i', 'h', payload FROM other")
