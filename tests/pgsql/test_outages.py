# SPDX-License-Identifier: Apache-2.0
"""A relay outlasts whatever happens to its database, without a restart (D5)."""
import json
import os
import pathlib
import signal

import psycopg2
import pytest

from conftest import wait_until
from sink_files import messages_in, words_in
from pgsql.server import SOAK
from small_disk import small_disk

TROUBLE = 'OUTBOX_STORE_TROUBLE'


def delivered(tmp_path, count):
    """Waits for so many messages in the sink, each once."""
    wait_until(lambda: len(messages_in(tmp_path / 'out')) >= count, f'{count} deliveries')
    ids = [message['id'] for message in messages_in(tmp_path / 'out')]
    assert len(ids) == len(set(ids)) == count


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL],
                         ids=['fast', 'immediate', 'killed'])
def D5_relay_survives_restarts_of_the_server(server, postroom, relay, tmp_path, number):
    running = relay('--to', 'file:out')
    postroom.enqueue()
    delivered(tmp_path, 1)
    for round in range(2, 4):
        seen = running.log.count(TROUBLE)
        server.stop(number)
        running.wait_for(TROUBLE, seen + 3)
        server.start()
        postroom.enqueue()
        delivered(tmp_path, round)
    running.stop()


def D5_relay_survives_terminated_sessions(postroom, relay, place, database, tmp_path):
    """Two workers, and the one that sweeps and purges."""
    running = relay('--to', 'file:out')
    wait_until(lambda: len(place.backends(database)) == 3, 'three sessions')
    gone = place.terminate(database)
    postroom.enqueue()
    delivered(tmp_path, 1)
    wait_until(lambda: len(set(place.backends(database)) - set(gone)) == 3, 'three new sessions')
    running.stop()


def E1_uncommitted_message_is_not_published(leased, relay, sql, tmp_path):
    """The server says so at the very end: its answers have come, and then the commit fails."""
    sql('CREATE SEQUENCE refused')
    sql("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF (SELECT count(*) FROM postroom_messages WHERE status = 'delivered') >= 50
                  AND nextval('refused') <= 3 THEN RAISE 'not now'; END IF;
               RETURN NULL; END $$""")
    sql("""CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON postroom_lanes
           DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.in_flight IS NOT NULL)
           EXECUTE FUNCTION refuse()""")
    sql("""CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON postroom_outbox
           DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
           WHEN (NEW.locked_by IS NOT NULL AND NEW.payload ->> 'n' LIKE '%9')
           EXECUTE FUNCTION refuse()""")
    sql("INSERT INTO postroom_outbox (topic, payload) "
        "SELECT 't', jsonb_build_object('n', n) FROM generate_series(1, 100) AS n")
    running = relay('--workers', '1', '--batch-size', '10', '--lease', '15s', '--to', 'file:out')
    wait_until(lambda: leased.stats()['delivered'] == 100, 'all to be settled')
    delivered(tmp_path, 100)
    assert sql('SELECT last_value > 3 FROM refused') == [(True,)]
    running.stop()


def D5_published_messages_are_settled_after_the_outage(server, postroom, relay, tmp_path):
    """The server dies between the publish and the settling: nothing is sent again."""
    for _ in range(5):
        postroom.enqueue()
    os.mkfifo(tmp_path / 'gate')
    running = relay('--workers', '1', '--lease', '1h', '--publish-timeout', '20m', '--to',
                    'exec:echo $POSTROOM_ID >> out; read word < gate')
    wait_until(lambda: len(words_in(tmp_path / 'out')) == 5, 'all to be published')
    server.stop(signal.SIGKILL)
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 5)
    running.wait_for(TROUBLE, 2)
    server.start()
    wait_until(lambda: postroom.stats()['delivered'] == 5, 'all to be settled')
    os.close(gate)
    assert len(words_in(tmp_path / 'out')) == 5
    assert {row['attempts'] for row in postroom.rows()} == {1}
    running.stop()


def D4_published_messages_are_settled_after_an_outage_during_stop(server, postroom,
                                                                                 relay, tmp_path):
    for _ in range(5):
        postroom.enqueue()
    os.mkfifo(tmp_path / 'gate')
    running = relay('--workers', '1', '--lease', '1h', '--shutdown-grace', '20m', '--publish-timeout',
                    '20m', '--to', 'exec:echo $POSTROOM_ID >> out; read word < gate')
    wait_until(lambda: len(words_in(tmp_path / 'out')) == 5, 'all to be published')
    server.stop(signal.SIGKILL)
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 5)
    running.wait_for(TROUBLE)
    running.process.terminate()
    running.wait_for(TROUBLE, running.log.count(TROUBLE) + 5)
    server.start()
    assert running.process.wait() == 0
    os.close(gate)
    assert postroom.stats()['delivered'] == 5
    assert len(words_in(tmp_path / 'out')) == 5


def D5_a_relay_waits_for_a_free_connection(server, relay, postroom, database, sql, tmp_path):
    sql('CREATE ROLE app LOGIN')
    sql('GRANT ALL ON ALL TABLES IN SCHEMA public TO app')
    sql('GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app')
    server.configure(max_connections=12)
    server.stop()
    server.start()
    postroom.db = server.url(database, user='app')
    running = relay('--to', 'file:out')
    postroom.enqueue()
    delivered(tmp_path, 1)
    hogs = []

    def hogged():
        """All connections are ours, and the relay has none."""
        server.terminate(database)
        try:
            while True:
                hogs.append(server.connect(database, user='app'))
        except psycopg2.OperationalError as error:
            assert 'slots are reserved' in str(error) or 'too many clients' in str(error), error
        return not server.backends(database)

    wait_until(hogged, 'all connections to be taken')
    running.wait_for('raise max_connections', running.log.count('raise max_connections') + 3)
    for hog in hogs:
        hog.close()
    postroom.enqueue()
    delivered(tmp_path, 2)
    running.stop()


def D5_relay_waits_while_the_database_is_read_only(postroom, relay, place, database, sql,
                                                         tmp_path):
    running = relay('--to', 'file:out')
    postroom.enqueue()
    delivered(tmp_path, 1)
    sql(f'ALTER DATABASE {database} SET default_transaction_read_only = on')
    place.terminate(database)
    running.wait_for('read-only transaction', 3)
    line = next(line for line in running.log.splitlines() if 'read-only' in line)
    assert 'target_session_attrs=read-write' in line
    place.sql('postgres', f'ALTER DATABASE {database} RESET default_transaction_read_only')
    postroom.enqueue()
    delivered(tmp_path, 2)
    running.stop()


@pytest.mark.parametrize('setting', ['statement_timeout', 'lock_timeout'])
def D5_relay_survives_timeouts_set_in_its_url(postroom, relay, place, database, sql, tmp_path, setting):
    """What was published before the table was locked is settled after it, and not sent again."""
    for _ in range(3):
        postroom.enqueue()
    os.mkfifo(tmp_path / 'gate')
    patient = postroom.db
    postroom.db += f'&options=-c%20{setting}%3D200ms'
    running = relay('--workers', '1', '--lease', '1h', '--publish-timeout', '20m', '--to',
                    'exec:echo $POSTROOM_ID >> begun; read word < gate')
    postroom.db = patient  # for the producer
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 3, 'all to be begun')
    holder = place.connect(database)
    holder.autocommit = False
    with holder.cursor() as cursor:
        cursor.execute('LOCK TABLE postroom_outbox')
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 100)
    running.wait_for(TROUBLE, 3)
    assert setting.split('_')[0] + ' timeout' in running.log
    holder.rollback()
    holder.close()
    wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status = 'delivered'") == [
        (3,)], 'all to be settled')
    assert len(words_in(tmp_path / 'begun')) == 3
    postroom.enqueue()
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 4, 'another')
    os.close(gate)
    running.process.kill()


def D5_relay_survives_idle_session_timeouts(postroom, relay, place, database, sql, tmp_path):
    if place.sql('postgres', "SELECT current_setting('idle_session_timeout', true)") == [(None,)]:
        pytest.skip('this server has no idle_session_timeout')
    sql(f"ALTER DATABASE {database} SET idle_session_timeout = '300ms'")
    running = relay('--to', 'file:out', '--poll-interval', '20s', '--lease', '60s')
    running.wait_for(TROUBLE, 2)
    postroom.db += '&options=-c%20idle_session_timeout%3D0'  # a slow producer is not what is tested
    postroom.enqueue()
    delivered(tmp_path, 1)
    running.stop()


@pytest.fixture
def disk(server):
    """A small file system that the server may use."""
    owner = os.stat(server.data)
    with small_disk(pathlib.Path(server.host) / 'disk', '20m', owner) as path:
        space = path / 'space'
        space.mkdir()
        os.chown(space, owner.st_uid, owner.st_gid)
        server.stop(signal.SIGINT)  # one that was started before may not see it
        server.start()
        yield path


def fill(disk):
    """Takes all room; delete the file to give it back."""
    ballast = disk / 'ballast'
    with open(ballast, 'wb', buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    return ballast


def D5_relay_resumes_when_server_has_room_again(disk, server, postroom, relay, database, sql,
                                                      tmp_path):
    """An old snapshot keeps old versions of the rows: every change needs new room."""
    count = 300
    server.sql('postgres', f"CREATE TABLESPACE small LOCATION '{disk / 'space'}'")
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', jsonb_build_object('n', n, 'fill', "
        "(SELECT string_agg(md5(m::text), '') FROM generate_series(1, 40) m)) "
        'FROM generate_series(1, %s) n', count)
    sql('ALTER TABLE postroom_outbox SET TABLESPACE small')
    snapshot = server.connect(database)
    snapshot.autocommit = False
    with snapshot.cursor() as cursor:
        cursor.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        cursor.execute('SELECT count(*) FROM postroom_outbox')
    ballast = fill(disk)
    line = postroom('enqueue', 't', json.dumps('x' * 8000)).err
    running = relay('--to', 'file:out', '--batch-size', '20', '--workers', '1', '--lease', '1h')
    running.wait_for('No space left on device', 3)
    assert 'make room on the server' in running.log
    before = len(messages_in(tmp_path / 'out'))
    assert before < count
    ballast.unlink()
    delivered(tmp_path, count + (line == ''))
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be settled')
    snapshot.close()
    running.stop()


def start_waiting(relay, text):
    running = relay('--to', 'file:out')
    running.wait_for(text, 3)
    assert running.process.poll() is None
    return running


def D5_starting_relay_waits_for_unreachable_server(server, postroom, relay, tmp_path):
    id = postroom.enqueue()
    server.stop()
    running = start_waiting(relay, TROUBLE)
    assert ' level=warn ' in running.log.splitlines()[0], running.log
    server.start()
    delivered(tmp_path, 1)
    assert messages_in(tmp_path / 'out')[0]['id'] == id
    running.stop()


def D4_relay_that_waits_for_its_server_can_be_stopped(server, postroom, relay):
    server.stop()
    running = start_waiting(relay, TROUBLE)
    running.stop()


if SOAK:  # it takes half a minute
    def D1_drain_gives_up_on_unreachable_server(server, postroom):
        server.stop()
        result = postroom('relay', '--drain', '--to', 'null:', '--log-level', 'error')
        assert result.code == 1 and result.out == ''
        assert len(result.err.splitlines()) == 1, result


def D5_starting_relay_does_not_wait_for_permanent_error(server, postroom, database, sql):
    sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    server.demand_password('guarded')
    refused = 'check user and password'
    for url, text in [
            (server.url(database, user='guarded', password='wrong'), refused),
            (server.url(database, user='guarded'), refused),
            (server.url('nowhere'), 'does not exist'),
            (server.url(database, user='no_row_duplicate'), 'does not exist')]:
        postroom.db = url
        line = wait_until(lambda: postroom.fails(1, 'relay', '--to', 'null:'), 'a refusal')
        assert text in line, line
    postroom.db = f'sqlite:{postroom.cwd}/no/such/directory/file'
    postroom.fails(1, 'relay', '--to', 'null:')
