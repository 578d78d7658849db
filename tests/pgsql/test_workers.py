# SPDX-License-Identifier: Apache-2.0
"""Workers in SQL alone (S1): beside relays, in databases of both kinds of lease."""
import collections
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import uuid

import psycopg2
import pytest

from conftest import wait_until
from databases import ordering
from pgsql.server import SOAK

PROGRAM = pathlib.Path(__file__).parent / 'sql_worker.py'
LEASE = 2
KEYS = 30
ROUNDS = 30 if SOAK else 4
PUBLIC = ['claim', 'ack', 'nack', 'release', 'renew']

# Refuses a claim of a message that has a valid lease, by relays and by workers.
GUARD = """
CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF OLD.status = 'processing' AND OLD.locked_until > clock_timestamp() + interval '50 ms' AND NEW.claims > OLD.claims THEN
		RAISE EXCEPTION 'GUARD: a leased message is claimed again';
	END IF;
	IF OLD.status = 'pending' AND EXISTS (SELECT FROM postroom_lanes AS l
		WHERE l.locked_until > clock_timestamp() + interval '50 ms' AND OLD.seq = ANY (l.in_flight)
		AND l.lane = (CASE WHEN OLD.key IS NULL THEN OLD.seq ELSE hashtext(OLD.key) END & 63) + 1
		AND OLD.state = 'ready' AND NEW.status = 'processing') THEN
		RAISE EXCEPTION 'GUARD: a message of a leased lane is claimed';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER guard BEFORE UPDATE ON postroom_outbox FOR EACH ROW EXECUTE FUNCTION guard()"""


class Workers:
    """Processes that claim by SQL, or by the relay; each is started again when it was killed."""

    def __init__(self, postroom, seed):
        self.postroom, self.out, self.seed = postroom, pathlib.Path(postroom.cwd, 'out'), seed
        self.log = pathlib.Path(postroom.cwd, 'workers.log')
        self.members = []

    def begin_sql(self):
        self.seed += 1
        with open(self.log, 'ab') as log:
            return subprocess.Popen([sys.executable, PROGRAM, self.postroom.db, self.out, str(LEASE), str(self.seed)],
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def begin_relay(self):
        return ordering.begin_relay(self.postroom, random.choice(list(ordering.SINKS.values())))

    def begin(self, sql, relays):
        for begin in [self.begin_sql] * sql + [self.begin_relay] * relays:
            self.members.append((begin, begin()))

    def kill_one(self):
        n = random.randrange(len(self.members))
        begin, process = self.members[n]
        assert process.poll() is None, self.log.read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.members[n] = (begin, begin())

    def check(self):
        assert all(process.poll() is None for _, process in self.members), self.log.read_text()
        assert 'GUARD' not in pathlib.Path(self.postroom.cwd, 'relays.log').read_text() if any(
            begin == self.begin_relay for begin, _ in self.members) else True

    def end(self):
        for _, process in self.members:
            process.kill()
            process.wait()


@pytest.fixture
def workers(postroom, sql):
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    sql(GUARD)
    crowd = Workers(postroom, seed)
    yield crowd
    crowd.end()


def enqueue_round(postroom, n):
    keys = [f'k{i}' for i in range(KEYS)]
    for payload in range(4 * n, 4 * n + 4):
        ordering.enqueue(postroom, [(key, payload) for key in random.sample(keys, len(keys))])


def await_all(workers, count):
    def all_settled():
        workers.check()
        return workers.postroom.stats()['backlog'] == 0
    wait_until(all_settled, 'all to be delivered')
    workers.check()
    assert workers.postroom.stats()['dead'] == 0
    assert ordering.first_deliveries(workers.out) == {f'k{i}': list(range(count)) for i in range(KEYS)}


@pytest.mark.parametrize('sql_count, relays', [(3, 0), (2, 2)], ids=['alone', 'beside relays'])
def S1_workers_deliver_each_key_in_order_across_failures_and_kills(leased, workers, sql_count, relays):
    workers.begin(sql_count, relays)
    for n in range(ROUNDS):
        enqueue_round(leased, n)
        workers.kill_one()
    await_all(workers, 4 * ROUNDS)


def S1_workers_deliver_in_order_while_the_lease_kind_changes(postroom, workers):
    workers.begin(2, 2)
    for n in range(ROUNDS):
        changing = postroom.start('lease', ['lane', 'row'][n % 2])
        enqueue_round(postroom, n)
        workers.kill_one()
        out, err = changing.communicate()
        assert changing.returncode == 0, (out, err)
    await_all(workers, 4 * ROUNDS)


class Caller:
    """One worker of the test itself."""

    def __init__(self, db, inbox=False):
        self.connection = psycopg2.connect(db)
        self.connection.autocommit = True
        self.id = str(uuid.uuid4())

    def sql(self, statement, *parameters):
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def claim(self, arguments='', *parameters):
        """(id, claims, attempts, key, payload) of each message."""
        return self.sql('SELECT id, claims, attempts, key, payload FROM postroom_claim(%s' +
                        (f', {arguments}' if arguments else '') + ')', self.id, *parameters)

    def settle(self, function, messages, *more):
        return self.sql(f'SELECT postroom_{function}(%s, %s::uuid[], %s{", %s" * len(more)})', self.id,
                        [message[0] for message in messages], [message[1] for message in messages], *more)[0][0]

    def nack(self, message, arguments='', *parameters):
        return self.sql('SELECT postroom_nack(%s, %s, %s' + (f', {arguments}' if arguments else '') + ')',
                        self.id, message[0], message[1], *parameters)[0][0]


@pytest.fixture
def caller(leased):
    """A worker, on a database of each kind of lease."""
    callers = []

    def make():
        callers.append(Caller(leased.db))
        return callers[-1]
    one = make()
    one.another = make
    yield one
    for each in callers:
        each.connection.close()


def put(postroom, *messages):
    """'a1' is a message with key a and payload 1; '-1' one without a key."""
    for message in messages:
        key = ['--key', message[0]] if message[0] != '-' else []
        postroom.enqueue('t', message[1:], *key)


def contents(messages):
    return ' '.join(f'{key or "-"}{payload}' for _, _, _, key, payload in messages)


def expire(sql):
    sql("UPDATE postroom_outbox SET locked_until = locked_until - interval '1 day' WHERE locked_until IS NOT NULL")


def status_of(sql):
    return {f'{key or "-"}{payload}': status for key, payload, status in
            sql('SELECT key, payload, status FROM postroom_messages')}


def A2_late_settle_of_a_reclaimed_message_changes_nothing(leased, caller, sql):
    put(leased, 'a1')
    first = caller.claim()
    assert caller.claim() == []
    expire(sql)
    other = caller.another()
    second = other.claim()
    assert [(m[0], m[1], m[2]) for m in second] == [(first[0][0], 2, 2)]
    for function in ('ack', 'release', 'renew'):
        assert caller.settle(function, first) == 0
    assert caller.nack(first[0]) is False
    assert status_of(sql) == {'a1': 'processing'}
    # Nor does the same worker settle its second claim by the token of its first one.
    expire(sql)
    third = caller.claim()
    assert caller.settle('ack', first) == 0 and other.settle('ack', second) == 0
    assert caller.settle('ack', third) == 1 and caller.settle('ack', third) == 0
    assert status_of(sql) == {'a1': 'delivered'}


def D6_nack_releases_later_messages_of_its_key(leased, caller, sql):
    """The worker that forgets them cannot settle them, and no other worker claims them."""
    put(leased, 'a1', 'a2', 'a3', 'b1')
    messages = caller.claim()
    assert sorted(contents(messages).split()) == ['a1', 'a2', 'a3', 'b1']
    of_a = [m for m in messages if m[3] == 'a']
    assert contents(of_a) == 'a1 a2 a3'
    assert caller.nack(of_a[0], "'no', retry_in => '1 day'") is True
    assert caller.settle('ack', of_a[1:]) == 0
    assert caller.settle('ack', [m for m in messages if m[3] == 'b']) == 1
    for _ in range(3):
        assert caller.another().claim() == []
    assert sql('SELECT attempts FROM postroom_messages WHERE key = %s ORDER BY seq', 'a') == [(1,), (0,), (0,)]
    sql("UPDATE postroom_outbox SET next_attempt_at = clock_timestamp() WHERE payload = '1'")
    drained = []
    while batch := caller.claim():
        drained.append(contents(batch))
        assert caller.settle('ack', batch) == len(batch)
    assert ' '.join(drained) == 'a1 a2 a3'


def D6_dead_letter_lets_later_messages_of_its_key_continue(leased, caller, sql):
    put(leased, 'a1', 'a2')
    messages = caller.claim()
    assert caller.nack(messages[0], "'no', permanent => true") is True
    assert caller.settle('ack', messages[1:]) == 1
    assert status_of(sql) == {'a1': 'dead', 'a2': 'delivered'}


def A6_release_refunds_the_attempt_and_renew_extends_the_lease(leased, caller, sql):
    put(leased, 'a1', '-2')
    messages = caller.claim("lease => '5 s'")
    before = sql('SELECT min(locked_until) FROM postroom_messages')[0][0]
    assert caller.settle('renew', messages, '1 hour') == 2
    assert (sql('SELECT min(locked_until) FROM postroom_messages')[0][0] - before).total_seconds() > 3000
    assert caller.settle('release', messages + messages) == 2
    assert sql('SELECT DISTINCT status, attempts, locked_by FROM postroom_messages') == [('pending', 0, None)]
    assert {m[1:3] for m in caller.claim()} == {(2, 1)}


def A3_nack_records_error_and_attempt_and_retries_after_the_backoff(leased, caller, sql):
    put(leased, '-1')
    for attempt in range(1, 11):
        message, = caller.claim()
        assert message[2] == attempt
        assert caller.nack(message, '%s', 'ä' * 3000) is True
        error, delay, status = sql('SELECT last_error, extract(epoch FROM next_attempt_at - updated_at), status '
                                   'FROM postroom_outbox')[0]
        assert error == 'ä' * 2000
        if attempt < 10:
            most = min(2 ** (attempt - 1), 300)
            assert most / 2 <= delay <= most and status == 'pending'
        sql('UPDATE postroom_outbox SET next_attempt_at = clock_timestamp() WHERE status = %s', 'pending')
    assert status == 'dead' and caller.claim() == []
    assert [row[:2] for row in sql('SELECT number, worker::text, error FROM postroom_attempts ORDER BY seq')] == [
        (n, caller.id) for n in range(1, 11)]


def C5_message_that_crashes_workers_is_reclaimed_alone_and_dead_lettered(leased, caller, sql):
    put(leased, '-1', 'a1', 'a2')
    assert len(caller.claim('max_attempts => 2')) == 3
    expire(sql)
    assert len(caller.claim('max_attempts => 2')) == 1
    assert len(caller.claim('max_attempts => 2')) == 1
    assert len(caller.claim('max_attempts => 2')) in (0, 1)  # a2 waits for a1
    expire(sql)
    while caller.claim('max_attempts => 2'):
        expire(sql)
    assert set(status_of(sql).values()) == {'dead'}
    assert sql('SELECT DISTINCT attempts FROM postroom_outbox') == [(2,)]
    assert 'worker died or hung' in sql('SELECT last_error FROM postroom_outbox')[0][0]


def C7_worker_takes_over_the_lanes_of_a_killed_relay(postroom, sql):
    postroom.ok('lease', 'lane')
    put(postroom, 'a1', 'a2', '-3')
    relay = postroom.start('relay', '--to', 'exec:sleep 1000', '--lease', '1h', '--max-attempts', '5')
    try:
        wait_until(lambda: sql('SELECT count(*) FROM postroom_lanes WHERE locked_by IS NOT NULL')[0][0] > 0, 'a lease')
    finally:
        relay.kill()
        relay.wait()
    in_flight = sql('SELECT sum(cardinality(in_flight)) FROM postroom_lanes')[0][0]
    sql("UPDATE postroom_lanes SET locked_until = locked_until - interval '1 day' WHERE locked_until IS NOT NULL")
    worker = Caller(postroom.db)
    seen = []
    while batch := worker.claim():
        seen += batch
        assert worker.settle('ack', batch) == len(batch)
    assert sorted(contents(seen).split()) == ['-3', 'a1', 'a2']
    assert sum(attempts == 2 for _, _, attempts, _, _ in seen) == in_flight
    assert sql('SELECT count(*) FROM postroom_history')[0][0] == 3
    worker.connection.close()


def C3_messages_below_a_mark_that_passed_their_transaction_are_claimed_in_order(postroom, sql):
    postroom.ok('lease', 'lane')
    worker, producer = Caller(postroom.db), psycopg2.connect(postroom.db)
    insert = "INSERT INTO postroom_outbox (topic, key, payload) VALUES ('t', 'a', %s)"
    with producer.cursor() as cursor:
        cursor.execute(insert, ('1',))
        cursor.execute('SELECT pg_current_xact_id()::text')
        xid = cursor.fetchone()[0]
        # As a relay raises the marks beside an open producer.
        sql("UPDATE postroom_lanes SET low_water_seq = (SELECT last_value + 1 FROM postroom_outbox_seq_seq), "
            "passed = ARRAY[%s::xid8], passed_from = '{1}'", xid)
        cursor.execute(insert, ('2',))
    put(postroom, 'b3')
    assert contents(worker.claim()) == 'b3'
    producer.commit()
    assert contents(worker.claim()) == 'a1 a2'
    producer.close()
    worker.connection.close()


def C4_open_claim_blocks_no_other_worker_and_can_be_rolled_back(leased, caller, sql):
    put(leased, 'a1', 'a2', '-3')
    caller.connection.autocommit = False
    first = caller.claim('max_messages => 1')
    assert len(first) == 1
    other = caller.another()
    other.sql("SET lock_timeout = '10s'")
    seen = other.claim()
    assert not {m[0] for m in seen} & {m[0] for m in first}
    if contents(first) == 'a1':
        assert 'a2' not in contents(seen)
    assert other.settle('release', seen) == len(seen)
    leased.ok('relay', '--drain', '--to', 'null:', '--topic', 'none')
    caller.connection.rollback()
    assert set(status_of(sql).values()) == {'pending'}
    assert {m[2] for m in other.claim()} == {1}


def A4_ack_and_next_claim_share_a_transaction(leased, caller, sql):
    put(leased, 'a1', 'a2', 'a3')
    caller.connection.autocommit = False
    drained, batch = [], caller.claim('max_messages => 1')
    caller.connection.commit()
    while batch:
        drained.append(contents(batch))
        assert caller.settle('ack', batch) == 1
        batch = caller.claim('max_messages => 1')
        caller.connection.commit()
    assert drained == ['a1', 'a2', 'a3'] and set(status_of(sql).values()) == {'delivered'}


def C6_claim_is_limited_to_its_scope(leased, caller):
    tenant = str(uuid.uuid4())
    leased.enqueue('orders.created', '1', '--namespace', 'shop')
    leased.enqueue('orders_created', '2', '--key', 'k')
    leased.enqueue('orders.paid', '3', '--tenant', tenant, '--key', 'k')
    payloads = lambda arguments, *values: sorted(m[4] for m in caller.claim(arguments, *values))
    assert payloads("topic => 'orders.*', namespace => 'none'") == []
    assert payloads("tenant_id => %s", tenant) == [3]
    assert payloads("namespace => 'shop', topic => '*'") == [1]
    assert payloads("topic => 'orders_c*'") == [2]
    assert payloads('') == []


def S1_functions_do_not_depend_on_the_session(leased, caller):
    leased.enqueue('a_b', '1')
    leased.enqueue('axb', '2')
    leased.enqueue('a\\b', '3', '--key', 'k')
    for setting in ('search_path = pg_catalog', 'standard_conforming_strings = off', "default_text_search_config = 'simple'",
                    'enable_indexscan = off', "DateStyle = 'German'", "IntervalStyle = 'iso_8601'"):
        caller.sql(f'SET {setting}')
    claim = lambda topic: [row[1] for row in caller.sql(
        'SELECT id, payload FROM public.postroom_claim(%s, topic => %s)', caller.id, topic)]
    assert claim('a_*') == [1] and claim('*\\b') == [3] and claim('*') == [2]


def C2_attempts_are_exact_with_many_workers(leased, caller, sql):
    """Every claim counts once, every release takes one back, and no fencing token is given twice."""
    put(leased, *[f'{key}{n}' for n in range(6) for key in 'abcdefgh-'])
    counted, tokens, failures = [], [], []  # of (id, 1 or -1)

    def work(worker, seed):
        choose = random.Random(seed)
        idle = 0
        try:
            while idle < 30:
                batch = worker.claim('max_messages => 7, max_attempts => 1000')
                idle = 0 if batch else idle + 1
                failed = set()
                for message in batch:
                    tokens.append(message[:2])
                    counted.append((message[0], 1))
                    if message[3] and message[3] in failed:
                        counted.append((message[0], -1))  # nack has released it
                    elif choose.random() < 0.3:
                        assert worker.nack(message, "'no', retry_in => '1 ms', max_attempts => 1000") is True
                        failed.add(message[3])
                    elif choose.random() < 0.3:
                        counted.append((message[0], -worker.settle('release', [message])))
                        failed.add(message[3])
                        later = [m for m in batch if m[3] and m[3] == message[3] and batch.index(m) > batch.index(message)]
                        worker.settle('release', later)
                    else:
                        assert worker.settle('ack', [message]) == 1
        except Exception as error:  # of a thread
            failures.append(error)
    seed = random.randrange(10 ** 9)
    print('seed', seed)
    threads = [threading.Thread(target=work, args=(caller.another(), seed + n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(set(tokens)) == len(tokens)
    assert set(status_of(sql).values()) == {'delivered'}
    expected = collections.Counter()
    for id, number in counted:
        expected[id] += number
    assert dict(sql('SELECT id::text, attempts FROM postroom_messages')) == dict(expected)


def D6_sweep_of_workers_unblocks_stranded_messages(leased, caller, sql):
    put(leased, 'a1', 'a2')
    sql("UPDATE postroom_outbox SET state = 'held'")
    assert caller.claim() == []
    wait_until(lambda: caller.claim('max_messages => 2') != [], 'a claim that sweeps')


ID = '0f5a3c1e-7b2d-4e9a-8c11-2233445566aa'
BAD = [
    ("postroom_claim(NULL)", 'postroom_claim: worker must not be null'),
    (f"postroom_claim('{ID}', 0)", 'postroom_claim: a claim is for 1 to 10000 rows'),
    (f"postroom_claim('{ID}', lease => '0')", 'postroom_claim: lease must be between 1 millisecond and 1 day'),
    (f"postroom_claim('{ID}', max_attempts => 0)", 'postroom_claim: max_attempts must be 1 or more'),
    (f"postroom_ack('{ID}', '{{{ID}}}', '{{}}')", 'postroom_ack: ids and claims must be arrays of the same length'),
    (f"postroom_release('{ID}', NULL, '{{1}}')", 'postroom_release: ids and claims must be arrays of the same length'),
    (f"postroom_renew('{ID}', '{{}}', '{{}}', '2 days')", 'postroom_renew: lease must be between 1 millisecond and 1 day'),
    (f"postroom_nack('{ID}', '{ID}', 1, retry_in => '-1 s')", 'postroom_nack: retry_in must be between 0 and 3650 days'),
    (f"postroom_inbox_claim('{ID}', '')", 'postroom_inbox_claim: handler must be the name of a handler'),
    (f"postroom_inbox_ack(NULL, 'h', '{{}}', '{{}}')", 'postroom_inbox_ack: worker must not be null'),
]


@pytest.mark.parametrize('call, error', BAD, ids=[call for call, _ in BAD])
def S1_functions_refuse_bad_input_with_a_sentence(postroom, sql, call, error):
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
        sql(f'SELECT {call}')
    assert str(refused.value).splitlines()[0] == error


@pytest.mark.parametrize('isolation', ['REPEATABLE READ', 'SERIALIZABLE'])
def S1_functions_refuse_isolation_with_one_snapshot(postroom, sql, isolation):
    for call in (f"postroom_claim('{ID}')", f"postroom_ack('{ID}', '{{}}', '{{}}')", f"postroom_nack('{ID}', '{ID}', 1)",
                 f"postroom_inbox_claim('{ID}', 'h')", f"postroom_inbox_release('{ID}', 'h', '{{}}', '{{}}')"):
        name = call.split('(')[0]
        with pytest.raises(psycopg2.errors.InvalidTransactionState) as refused:
            sql(f'BEGIN ISOLATION LEVEL {isolation}; SELECT {call}')
        assert str(refused.value).splitlines()[0] == (
            f'{name}: the transaction is {isolation}; call it in a transaction that is READ COMMITTED')


def claim_jobs(worker, handler='h', arguments=''):
    """(id, claims, attempts, key, payload) of each job."""
    return worker.sql('SELECT id, claims, attempts, key, payload FROM postroom_inbox_claim(%s, %s' +
                      (f', {arguments}' if arguments else '') + ')', worker.id, handler)


def settle_jobs(worker, function, jobs):
    return worker.sql(f'SELECT postroom_inbox_{function}(%s, %s, %s, %s)', worker.id, 'h',
                      [job[0] for job in jobs], [job[1] for job in jobs])[0][0]


@pytest.fixture
def worker(postroom):
    one = Caller(postroom.db)
    yield one
    one.connection.close()


def insert_jobs(sql, *jobs):
    for job in jobs:
        sql("INSERT INTO postroom_inbox (id, handler_name, topic, key, payload) VALUES (%s, 'h', 't', %s, %s)",
            job, job[0] if job[0] != '-' else None, job[1:])


def S1_workers_run_the_jobs_of_a_handler_in_order(postroom, worker, sql):
    insert_jobs(sql, 'a1', 'a2', '-3', 'b4')
    sql("INSERT INTO postroom_inbox (id, handler_name) VALUES ('x', 'other')")
    jobs = claim_jobs(worker)
    assert contents(jobs) == 'a1 a2 -3 b4'
    assert claim_jobs(worker) == []
    assert worker.sql("SELECT postroom_inbox_nack(%s, 'h', 'a1', 1, 'no', retry_in => '1 day')", worker.id) == [(True,)]
    assert settle_jobs(worker, 'ack', jobs) == 2
    assert claim_jobs(worker) == [] and settle_jobs(worker, 'renew', jobs) == 0
    assert dict(sql('SELECT id, status FROM postroom_inbox')) == {
        'a1': 'pending', 'a2': 'pending', '-3': 'completed', 'b4': 'completed', 'x': 'pending'}
    sql("UPDATE postroom_inbox SET next_attempt_at = clock_timestamp() WHERE id = 'a1'")
    again = claim_jobs(worker)
    assert contents(again) == 'a1' and again[0][1:3] == (2, 2)
    assert settle_jobs(worker, 'release', again) == 1 and settle_jobs(worker, 'ack', again) == 0
    again = claim_jobs(worker)
    assert worker.sql("SELECT postroom_inbox_nack(%s, 'h', 'a1', 3, 'never', true)", worker.id) == [(True,)]
    assert contents(claim_jobs(worker)) == 'a2'
    assert sql("SELECT number, error FROM postroom_attempts WHERE handler_name = 'h' ORDER BY seq") == [(1, 'no'), (2, 'never')]


def N2_job_and_its_effect_commit_together_or_not_at_all(postroom, worker, sql):
    sql('CREATE TABLE ledger (id text)')
    insert_jobs(sql, 'a1')
    job, = claim_jobs(worker)
    sql("UPDATE postroom_inbox SET locked_until = locked_until - interval '1 day' WHERE status = 'active'")
    other = Caller(postroom.db)
    second, = claim_jobs(other)

    def apply(who, claimed):
        """The worker whose lease was lost rolls its effect back."""
        who.connection.autocommit = False
        try:
            who.sql('INSERT INTO ledger VALUES (%s)', claimed[0])
            if settle_jobs(who, 'ack', [claimed]) == 1:
                who.connection.commit()
        finally:
            who.connection.rollback()
    apply(worker, job)
    assert sql('SELECT * FROM ledger') == []
    apply(other, second)
    assert sql('SELECT * FROM ledger') == [('a1',)] and sql('SELECT status, attempts FROM postroom_inbox') == [('completed', 2)]
    other.connection.close()


def S1_workers_and_consumers_share_the_jobs_of_a_handler(postroom, sql, worker):
    insert_jobs(sql, *[f'{key}{n}' for n in range(1, 6) for key in 'abcdef-'])
    consumer = postroom.start('consume', '--handler', 'h', '--ordered', '--exec', 'echo "$(cat)" >> out',
                              '--poll-interval', '20ms', stderr=subprocess.DEVNULL)
    seen = []
    try:
        def finished():
            jobs = claim_jobs(worker, arguments='max_jobs => 3')
            seen.extend(jobs)
            assert settle_jobs(worker, 'ack', jobs) == len(jobs)
            return sql("SELECT count(*) FROM postroom_inbox WHERE status <> 'completed'") == [(0,)]
        wait_until(finished, 'all jobs')
    finally:
        consumer.terminate()
        assert consumer.wait() == 0
    done = sql("SELECT key, array_agg(payload::text::int ORDER BY processed_at, seq) FROM postroom_inbox "
               'WHERE key IS NOT NULL GROUP BY key')
    assert dict(done) == {key: [1, 2, 3, 4, 5] for key in 'abcdef'}
    assert sql('SELECT DISTINCT attempts FROM postroom_inbox') == [(1,)]
    own = sum(line != '' for line in pathlib.Path(postroom.cwd, 'out').read_text().splitlines()) if \
        pathlib.Path(postroom.cwd, 'out').exists() else 0
    assert own + len(seen) == 35


def plans_of(connection):
    """The plans of all statements that the functions have run since the last call."""
    text = '\n'.join(connection.notices)
    del connection.notices[:]
    return text


@pytest.fixture
def watched(leased, database, place, sql):
    """A worker whose session reports plans, on tables that are much larger than the statistics say."""
    for table in ('postroom_outbox', 'postroom_inbox'):
        sql(f'ALTER TABLE {table} SET (autovacuum_enabled = off)')
    sql('ANALYZE')
    for columns, values in [('status, delivered_at', "'delivered', now()"), ('attempts, state, next_attempt_at', "3, 'scheduled', now() + interval '1 day'"),
                            ('status', "'dead'"), ('key', "'k' || n %% 50"), ('key', 'NULL')]:
        sql(f"INSERT INTO postroom_outbox (topic, payload, {columns}) SELECT 't', '1', {values} FROM generate_series(1, 20000) AS n"
            .replace('%%', '%'))
    sql("INSERT INTO postroom_inbox (id, handler_name, topic, key, payload, status) SELECT n, 'h', 't', 'k' || n % 50, '1', "
        "CASE WHEN n % 2 = 0 THEN 'pending' ELSE 'completed' END FROM generate_series(1, 40000) AS n")
    options = ('-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 -c auto_explain.log_level=notice '
               '-c auto_explain.log_nested_statements=on -c auto_explain.log_analyze=on -c auto_explain.log_timing=off')
    one = Caller(place.url(database))
    one.connection.close()
    one.connection = place.connect(database, options=options)
    one.connection.autocommit = True
    yield one
    one.connection.close()


def C1_functions_use_indexes_whatever_the_statistics(leased, watched):
    batch = watched.claim('max_messages => 50')
    assert len(batch) > 20
    assert watched.settle('renew', batch) == len(batch)
    assert watched.settle('release', batch[:2]) == 2
    assert watched.nack(batch[-1]) is True
    watched.settle('ack', batch[2:-1])
    watched.claim('max_messages => 50')
    jobs = claim_jobs(watched, arguments='max_jobs => 50')
    assert len(jobs) == 50
    assert settle_jobs(watched, 'ack', jobs[1:]) == 49
    watched.sql('SELECT postroom_worker_sweep(), postroom_worker_sweep_jobs()')
    plans = plans_of(watched.connection)
    assert plans.count('Query Text:') > 30
    # The index of the other kind of lease does not exist, and its part of a plan is never executed.
    scans = re.findall('.*Seq Scan on postroom_(?:outbox|inbox).*', plans)
    assert [scan for scan in scans if '(never executed)' not in scan] == []
