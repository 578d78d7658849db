# SPDX-License-Identifier: Apache-2.0
"""Producers that use two-phase commit (JTA, XA)."""
import psycopg2
import pytest

from conftest import wait_until
from sink_files import messages_in
from pgsql.test_wakeup import asleep_until

DOORS = {
    'insert': "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')",
    'function': "SELECT postroom_enqueue('t', '1', dedupe_key => 'd')",
}


@pytest.fixture
def prepares(server):
    """A server that allows prepared transactions."""
    server.stop()
    server.configure(max_prepared_transactions=5)
    return server.start()


def prepare(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute('BEGIN')
        cursor.execute(statement)
        cursor.execute("PREPARE TRANSACTION 'order 1'")


@pytest.mark.parametrize('door', DOORS)
def D3_prepared_transaction_is_found_by_polling_when_notify_is_off(prepares, postroom, relay, database, sql,
                                                                   tmp_path, door):
    relay('--to', 'file:out', '--poll-interval', '5s', '--workers', '1')
    connection = prepares.connect(database)
    with connection.cursor() as cursor:
        cursor.execute('SET postroom.notify = off')
    asleep_until(sql, ahead='2s')
    prepare(connection, DOORS[door])
    # A prepared transaction belongs to no session, and is not delivered before its second phase.
    assert not messages_in(tmp_path / 'out')
    sql("COMMIT PREPARED 'order 1'")
    wait_until(lambda: messages_in(tmp_path / 'out'), 'the message')


def D3_prepared_command_is_found_by_polling_when_notify_is_off(prepares, postroom, database, sql, tmp_path):
    postroom.start('consume', '--handler', 'h', '--exec', 'cat >> out', '--poll-interval', '5s', '--workers', '1')
    connection = prepares.connect(database, options='-c postroom.notify=off')
    wait_until(lambda: sql('SELECT 1 FROM postroom_inbox_notify_until WHERE last_value > '
                           'extract(epoch FROM clock_timestamp()) * 1000 + 2000'), 'the worker to sleep')
    prepare(connection, "SELECT postroom_inbox_submit('h', 'c', '1')")
    sql("COMMIT PREPARED 'order 1'")
    wait_until(lambda: (tmp_path / 'out').exists() and (tmp_path / 'out').read_text() == '1', 'the job')


def D3_prepare_is_refused_by_the_server_after_a_notification(prepares, postroom, relay, database, sql):
    """Why the setting is needed; without a sleeping relay there is no notification."""
    connection = prepares.connect(database)
    prepare(connection, DOORS['insert'])
    sql("ROLLBACK PREPARED 'order 1'")
    relay('--to', 'null:', '--poll-interval', '8h', '--lease', '24h', '--workers', '1')

    def is_refused():
        """False if it was late: the relay was between two sleeps."""
        asleep_until(sql, ahead='2s')
        try:
            prepare(connection, DOORS['insert'])
        except psycopg2.errors.FeatureNotSupported:
            return True
        sql("ROLLBACK PREPARED 'order 1'")
        return False
    wait_until(is_refused, 'the server to refuse it')
