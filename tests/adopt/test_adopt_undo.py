# SPDX-License-Identifier: Apache-2.0
"""postroom adopt --undo is complete only when each undelivered message has been handed back. Until then it can be repeated."""
import pytest

from adopt.test_adopt_pgsql import LAYOUT, MAPPING
from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, shared, sql, template, unmigrated  # noqa: F401  fixtures

INSERT = "INSERT INTO outbox (topic, payload) VALUES ('a', '{}')"
PENDING = "SELECT count(*) FROM outbox WHERE status = 'pending'"
OURS = 'SELECT count(*) FROM postroom_messages'
ADOPTED = 'SELECT count(*) FROM postroom_adopted'


@pytest.fixture
def adopted(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    return postroom


@pytest.mark.parametrize('column', ['topic', 'payload', 'created_at'])
def U2_renamed_column_can_be_adopted_again_after_undo(adopted, sql, column):  # noqa: F811
    sql(INSERT)
    sql(f'ALTER TABLE outbox RENAME COLUMN {column} TO renamed')
    sql(INSERT.replace(column, 'renamed'))
    assert 'no longer has this column; run --undo' in adopted.fails(1, 'adopt', 'outbox', '--yes')
    shown = adopted.ok('adopt', 'outbox', '--status').out
    assert f'no longer has the column {column}' in shown, shown
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1
    assert (sql(PENDING), sql(OURS)) == ([(2,)], [(0,)])
    adopted.ok('adopt', 'outbox', '--yes', '--column', f'{column}=renamed', *MAPPING)
    assert (sql(PENDING), sql(OURS)) == ([(0,)], [(2,)])


@pytest.mark.parametrize('column', ['id', 'status'])
def U2_undo_names_the_column_that_it_misses(adopted, sql, column):  # noqa: F811
    sql(INSERT)
    sql(f'ALTER TABLE outbox RENAME COLUMN {column} TO renamed')
    assert 'give it its old name, run --undo' in adopted.fails(1, 'adopt', 'outbox', '--undo', '--yes')
    sql(f'ALTER TABLE outbox RENAME COLUMN renamed TO {column}')
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1


def U2_undo_of_a_locked_row_is_completed_later(adopted, place, database, sql):  # noqa: F811
    for _ in range(3):
        sql(INSERT)
    pause, holder = place.connect(database), place.connect(database)
    pause.autocommit = holder.autocommit = False
    # Undo can list the messages, and not withdraw them.
    pause.cursor().execute('LOCK TABLE postroom_outbox IN EXCLUSIVE MODE')
    undo = adopted.start('adopt', 'outbox', '--undo', '--yes', '--chunk', '1')
    wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'postroom_outbox'::regclass"), 'undo to withdraw')
    holder.cursor().execute("SELECT FROM outbox AS t JOIN postroom_outbox AS o USING (id) ORDER BY seq DESC LIMIT 1 FOR UPDATE OF t")
    pause.rollback()
    out, err = undo.communicate()
    assert undo.returncode == 1 and b'1 messages are in flight, or their rows are locked' in err, (out, err)
    assert (sql(PENDING), sql(OURS)) == ([(2,)], [(1,)])
    holder.rollback()
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1
    assert (sql(PENDING), sql(OURS)) == ([(3,)], [(0,)])
    assert 'is not adopted' in adopted.fails(1, 'adopt', 'outbox', '--undo', '--yes')


@pytest.mark.parametrize('status', [0, 1], ids=['delivered', 'failed'])
def U2_undo_is_complete_when_messages_in_flight_are_settled(adopted, sql, tmp_path, status):  # noqa: F811
    in_flight(adopted, sql, tmp_path, status)


def in_flight(adopted, sql, tmp_path, status):  # noqa: F811
    """A relay publishes while --undo runs; then its message is delivered, or fails."""
    sql(INSERT)
    relay = adopted.start('relay', '--base-delay', '1h', '--max-delay', '1h', '--topic', 'a', '--to',
                          f'exec:touch begun; while ! test -e end; do sleep 0.1; done; exit {status}')
    wait_until(lambda: (tmp_path / 'begun').exists(), 'the relay to publish')
    sql(INSERT.replace("'a'", "'b'"))
    refused = adopted('adopt', 'outbox', '--undo', '--yes')
    assert refused.code == 1 and '1 messages are in flight' in refused.err, refused
    # A new row belongs to the old dispatcher. So does that of the message which the relay had not claimed.
    sql(INSERT)
    assert sql(PENDING) == [(2,)]
    (tmp_path / 'end').touch()
    wait_until(lambda: sql("SELECT 1 FROM postroom_messages WHERE status <> 'processing'"), 'the message to be settled')
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == status
    assert (sql(PENDING), sql(OURS)) == ([(2 + status,)], [(1 - status,)])
    relay.terminate()
    assert relay.wait() == 0
