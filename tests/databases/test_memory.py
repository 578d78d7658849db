# SPDX-License-Identifier: Apache-2.0
"""How much memory a relay and a consumer need, whatever waits (D8)."""
import http.server
import json
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from conftest import PATIENCE, PROGRAM, Postroom, sanitized, wait_until
from servers.brokers import BROKERS, start_broker

# The kind of lease is one of the outbox, and makes no difference here.
both_databases = pytest.mark.parametrize('kind', ['sqlite', 'pgsql'], indirect=True)
MIB = 1 << 20
# The memory of a process beside four times its largest message.
ALLOWED = 64 * MIB


def peak(process):
    """The most memory that the running process has ever had, in bytes; 0 if it has ended by itself."""
    with open(f'/proc/{process.pid}/status', encoding='ascii') as status:
        for line in status:
            if line.startswith('VmHWM:'):
                return int(line.split()[1]) * 1024
    assert process.wait(PATIENCE) == 0, 'there is no VmHWM in its status'
    return 0


def check_peak(process, largest):
    """The largest message that waits has so many bytes, as it is printed."""
    if sanitized():
        return
    had, may = peak(process), ALLOWED + 4 * largest
    assert had <= may, f'{had // MIB} MiB, and not more than {may // MIB}'


def finish(process):
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def nothing_waits(postroom):
    counts = postroom.stats()
    return counts['pending'] + counts['processing'] == 0


def deliver(postroom, largest, *arguments, **options):
    """Runs a relay until nothing waits, and checks what it needed. Returns the counts."""
    for stream in ('stdout', 'stderr'):
        options.setdefault(stream, open(os.path.join(postroom.cwd, stream), 'ab'))
    relay = postroom.start('relay', *arguments, **options)
    wait_until(lambda: relay.poll() is not None or nothing_waits(postroom), 'all to be delivered')
    assert relay.poll() is None, relay.returncode
    check_peak(relay, largest)
    finish(relay)
    return postroom.stats()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        left = int(self.headers['Content-Length'])
        while left > 0:
            left -= len(self.rfile.read(min(left, MIB)))
        self.send_response(200)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *_):
        pass


def start_http():
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f'http://127.0.0.1:{server.server_address[1]}/'


def bodies(postroom, count, size, *arguments):
    path = os.path.join(postroom.cwd, f'body-{size}')
    with open(path, 'wb') as body:
        body.write(os.urandom(MIB) * (size // MIB))
    for _ in range(count):
        postroom.ok('enqueue', 'large', '--body-file', path, '--max-payload', size, *arguments)


def mixed(postroom):
    """Many messages of all kinds; the largest has 10 MiB."""
    lines = []
    for number in range(300):
        lines.append({'topic': 'small', 'payload': {'n': number}, 'key': f'k{number % 50}'})
    headers = {f'h{number}': 'x' * 1200 for number in range(50)}
    lines += [{'topic': 'headers', 'payload': {}, 'headers': headers}] * 300
    lines += [{'topic': 'middle', 'payload': 'y' * 200000}] * 60
    lines += [{'topic': 'middle', 'payload': 'y' * 400000, 'key': 'm'}] * 30
    deep = '[' * 900 + ']' * 900
    path = os.path.join(postroom.cwd, 'mixed')
    with open(path, 'w', encoding='ascii') as out:
        for line in lines:
            out.write(json.dumps(line) + '\n')
        out.write(f'{{"topic":"deep","payload":{deep}}}\n' * 100)
    postroom.ok('enqueue', '--ndjson', path)
    bodies(postroom, 4, 10 * MIB)
    bodies(postroom, 2, 10 * MIB, '--key', 'm')
    return len(lines) + 100 + 6


@pytest.mark.parametrize('sink', ['stdout:', 'file:out', 'exec:cat > /dev/null', 'http'])
def D8_relay_memory_is_bounded_by_its_largest_message(postroom, sink):
    count = mixed(postroom)
    server, url = start_http() if sink == 'http' else (None, sink)
    try:
        counts = deliver(postroom, 10 * MIB, '--to', url)
    finally:
        if server:
            server.shutdown()
            server.server_close()
    assert counts['delivered'] == count, counts


def measure(postroom, largest, *arguments):
    """Runs a command that ends by itself, as the only child of a small process."""
    small = ('import resource, subprocess, sys; '
             'code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); '
             'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)')
    done = subprocess.run([sys.executable, '-c', small, PROGRAM, *map(str, arguments)], check=True,
                          cwd=postroom.cwd, env=postroom.environment(), stdout=subprocess.PIPE)
    if not sanitized():
        assert int(done.stdout) * 1024 <= ALLOWED + 4 * largest, done.stdout


def D8_sweep_retry_and_purge_need_no_memory_for_content(postroom):
    """Some die with their worker; all become dead letters, come back, are delivered and purged."""
    bodies(postroom, 5, 10 * MIB)
    killed = postroom.start('relay', '--to', 'exec:sleep 60', '--max-attempts', 1, '--lease', '12s',
                            '--workers', 4, stdout=None, stderr=None)
    wait_until(lambda: postroom.stats()['processing'] > 0, 'something to be claimed')
    killed.kill()
    killed.wait()
    counts = deliver(postroom, 10 * MIB, '--to', 'exec:exit 1', '--max-attempts', 1, '--lease', '2s')
    assert counts['dead'] == 5, counts
    measure(postroom, 0, 'retry', '--dead')
    counts = deliver(postroom, 10 * MIB, '--to', 'file:out', '--retention', '0s')
    assert counts['dead'] == 0, counts
    measure(postroom, 0, 'purge', '--status', 'delivered', '--yes')


@both_databases
def P1_list_does_not_read_content(postroom):
    bodies(postroom, 8, 10 * MIB)
    measure(postroom, 0, 'list')
    measure(postroom, 0, 'stats')
    with open(os.path.join(postroom.cwd, 'long'), 'w', encoding='ascii') as event:
        event.write(json.dumps('x' * MIB))
    for number in range(100):
        with open(os.path.join(postroom.cwd, 'long'), 'rb') as event:
            postroom.ok('inbox', 'submit', 'h', f'id{number}', '-', input=event.read()[:MIB - 2] + b'"')
    measure(postroom, 0, 'inbox', 'list')


@both_databases
def D8_consumer_memory_is_bounded_by_its_largest_event(postroom):
    """From lines of JSON into the inbox, and from there to a command; the largest has 10 MiB."""
    path = os.path.join(postroom.cwd, 'events')
    with open(path, 'w', encoding='ascii') as events:
        for number in range(6):
            events.write(json.dumps({'id': f'l{number}', 'topic': 't', 'payload': 'x' * 10 * MIB}) + '\n')
        for number in range(2):
            zeros = '0,' * (5 * MIB - 1)
            events.write(f'{{"id":"z{number}","topic":"t","payload":[{zeros}0]}}\n')
        for number in range(98):
            events.write(json.dumps({'id': f'm{number}', 'topic': 't', 'payload': 'x' * 100000}) + '\n')
    with open(path, 'rb') as events:
        consumer = postroom.start('consume', '--handler', 'h', '--from', '-', '--exec',
                                  'wc -c >> sizes; test -e done || sleep 0.01', stdin=events,
                                  stdout=None, stderr=open(os.path.join(postroom.cwd, 'log'), 'wb'))

    def sizes():
        try:
            with open(os.path.join(postroom.cwd, 'sizes'), encoding='ascii') as seen:
                return len(seen.readlines())
        except FileNotFoundError:
            return 0

    def watch():
        # It ends with its input, and has no memory to measure afterwards.
        if consumer.poll() is None:
            check_peak(consumer, 10 * MIB)
        return sizes() == 106 or consumer.poll() is not None
    wait_until(watch, 'all events to be handled')
    assert consumer.wait(PATIENCE) == 0
    assert sizes() == 106


# None is larger than any of the brokers takes by default.
LARGEST = 900_000


def fill_broker(shop, broker):
    """Small events, so that a source asks for many at once; then large ones, by content and by headers."""
    headers = {f'h{number}': 'x' * 1200 for number in range(50)}
    with open(os.path.join(shop.cwd, 'lines'), 'w', encoding='ascii') as lines:
        for number in range(1500):
            lines.write(json.dumps({'topic': 'orders', 'key': f's{number}', 'payload': 1}) + '\n')
        for number in range(120):
            lines.write(json.dumps({'topic': 'orders', 'key': f'l{number}', 'payload': 'x' * LARGEST}) + '\n')
        for number in range(800):
            lines.write(json.dumps({'topic': 'orders', 'key': f'h{number}', 'payload': 1,
                                    'headers': headers}) + '\n')
    broker.make_room()
    shop.ok('enqueue', '--ndjson', 'lines')
    shop.ok('relay', '--drain', '--to', broker.sink)
    assert shop.stats()['delivered'] == 2420
    return 2420


@pytest.fixture(params=BROKERS)
def broker(request, postroom, tmp_path):
    broker = start_broker(request.param, postroom, tmp_path)
    yield broker
    broker.end()


@both_databases
def D8_consumer_memory_is_bounded_whatever_its_broker_holds(postroom, kind, sql, tmp_path, broker):
    """The broker would send far more at once than the consumer may have."""
    (tmp_path / 'shop').mkdir()
    shop = Postroom(tmp_path / 'shop' / 'shop.db', tmp_path / 'shop')
    shop.ok('migrate')
    # On PostgreSQL each worker reads for itself.
    workers = 4 if kind == 'pgsql' and broker.consumers > 1 else 1
    count = fill_broker(shop, broker)
    with open(os.path.join(postroom.cwd, 'log'), 'wb') as log:
        consumer = postroom.start('consume', '--handler', 'h', '--from', broker.source, '--log-level', 'warn',
                                  '--batch-size', 1000, '--sql', 'SELECT 1', '--workers', workers,
                                  stdout=log, stderr=log)

    def all_done():
        assert consumer.poll() is None, consumer.returncode
        return int(sql("SELECT count(*) FROM postroom_inbox WHERE status = 'completed'")[0][0]) == count
    wait_until(all_done, 'all events to be handled')
    check_peak(consumer, LARGEST)
    finish(consumer)


@both_databases
def E5_payload_that_prints_to_more_than_64_mib_is_refused(postroom):
    numbers = '[' + '1e131071,' * 512 + '0]'
    why = 'more than 64 MiB when its numbers are written out'
    assert why in postroom.fails(1, 'enqueue', 't', numbers)
    assert why in postroom.fails(1, 'inbox', 'submit', 'h', 'id', numbers)
    assert why in postroom('enqueue', '--ndjson', '-', input='{"topic":"t","payload":%s}\n' % numbers).err
    assert postroom.stats()['pending'] == 0


def limited(megabytes):
    """For start(): the process gets no more memory than this."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * MIB, megabytes * MIB))
    return limit


# Room for a relay and its small messages, and for none of 50 MiB.
LITTLE = 190
# The same for a consumer whose threads share one heap.
LITTLE_CONSUMER = 85


def C5_message_that_cannot_be_received_is_dead_lettered(postroom):
    """The relay has too little memory to receive it, and goes on with the others."""
    if sanitized():
        pytest.skip('a sanitizer needs more address space than the limit allows')
    postroom.enqueue('small', '{"n": 1}', '--key', 'k')
    bodies(postroom, 1, 50 * MIB, '--key', 'k')
    for number in range(20):
        postroom.enqueue('small', '{"n": 2}', '--key', f'other{number}')
    relay = postroom.start('relay', '--to', 'file:out', '--max-attempts', 3, '--base-delay', '10ms',
                           '--workers', 1, stdout=None, stderr=None, preexec_fn=limited(LITTLE))
    wait_until(lambda: relay.poll() is not None or nothing_waits(postroom), 'all to be settled')
    assert relay.poll() is None, relay.returncode
    finish(relay)
    counts = postroom.stats()
    assert (counts['delivered'], counts['dead']) == (21, 1), counts
    dead = postroom.rows('--status', 'dead')[0]
    assert dead['attempts'] == 3 and 'memory' in dead['last_error'], dead['last_error']


# Kills a process that asks for too much, as the kernel does.
KILLER = '''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>
static void check(size_t size) { if (size > 40u << 20) kill(getpid(), SIGKILL); }
void *malloc(size_t size)
{
	static void *(*real)(size_t);
	if (!real)
		real = dlsym(RTLD_NEXT, "malloc");
	check(size);
	return real(size);
}
void *realloc(void *old, size_t size)
{
	static void *(*real)(void *, size_t);
	if (!real)
		real = dlsym(RTLD_NEXT, "realloc");
	check(size);
	return real(old, size);
}
'''


def killer(postroom):
    """The environment of a process that is killed when it allocates more than 40 MiB at once."""
    if sanitized():
        pytest.skip('a sanitizer has an allocator of its own')
    library = os.path.join(postroom.cwd, 'killer.so')
    subprocess.run(['cc', '-shared', '-fPIC', '-O1', '-o', library, '-xc', '-'], input=KILLER.encode(),
                   check=True)
    return {'LD_PRELOAD': library}


def restart_while_killed(postroom, environment, *arguments):
    """Runs a command again as long as it is killed. It must be killed three times, and then end."""
    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        assert len(codes) < 12, (codes, postroom.stats())
        process = postroom.start(*arguments, '--drain', '--max-attempts', 3, '--workers', 1, '--lease',
                                 '6s', env=environment, stdout=None, stderr=subprocess.DEVNULL)
        codes.append(process.wait(PATIENCE))
    assert codes == [-signal.SIGKILL] * 3 + [0], codes


def C5_message_that_crashes_relay_when_received_is_dead_lettered(postroom):
    """Every process that allocates memory for it is killed; the relay is restarted each time."""
    environment = killer(postroom)
    postroom.enqueue('small')
    bodies(postroom, 1, 50 * MIB)
    for number in range(20):
        postroom.enqueue('small', '{}', '--key', f'k{number}')
    restart_while_killed(postroom, environment, 'relay', '--to', 'file:out')
    counts = postroom.stats()
    assert (counts['delivered'], counts['dead']) == (21, 1), counts


ZEROS = {'sqlite': 'zeroblob(52428800)', 'pgsql': "decode(repeat('00', 52428800), 'hex')"}


def submit(postroom, sql, kind):
    """A job between others, with a body of 50 MiB."""
    for number in range(10):
        postroom.ok('inbox', 'submit', 'h', f'first{number}', '{}')
    sql(f"INSERT INTO postroom_inbox (id, handler_name, body) VALUES ('large', 'h', {ZEROS[kind]})")
    for number in range(10):
        postroom.ok('inbox', 'submit', 'h', f'last{number}', '{}')


def check_jobs(postroom, reason):
    dead = postroom.ok('inbox', 'list', '--status', 'dead', '--json').objects
    assert [row['id'] for row in dead] == ['large'], dead
    assert dead[0]['attempts'] == 3 and reason in dead[0]['last_error'], dead[0]['last_error']
    assert len(postroom.ok('inbox', 'list', '--status', 'completed', '--json').objects) == 20


@both_databases
def C5_job_that_kills_consumer_while_it_is_received_is_dead_lettered(postroom, sql, kind):
    environment = killer(postroom)
    submit(postroom, sql, kind)
    restart_while_killed(postroom, environment, 'consume', '--handler', 'h', '--exec', 'cat > /dev/null')
    check_jobs(postroom, 'lease ran out')


@both_databases
def C5_job_that_cannot_be_received_is_dead_lettered(postroom, sql, kind):
    if sanitized():
        pytest.skip('a sanitizer needs more address space than the limit allows')
    submit(postroom, sql, kind)
    consumer = postroom.start('consume', '--handler', 'h', '--exec', 'cat > /dev/null', '--drain',
                              '--max-attempts', 3, '--base-delay', '10ms', '--workers', 1, stdout=None,
                              stderr=subprocess.DEVNULL, env={'MALLOC_ARENA_MAX': '1'},
                              preexec_fn=limited(LITTLE_CONSUMER))
    assert consumer.wait(PATIENCE) == 0
    check_jobs(postroom, 'memory')


@both_databases
def D8_worker_does_not_wait_for_memory_that_it_holds_itself(postroom):
    """The content of a message behind a failed one is dropped before a larger one is loaded."""
    text = '"' + 'x' * (300 << 10) + '"'
    for _ in range(2):
        postroom.ok('enqueue', 'bad', '-', '--key', 'k', input=text)
    bodies(postroom, 1, 17 << 20)
    relay = postroom.start('relay', '--workers', 1, '--base-delay', '1h', '--max-delay', '1h',
                           '--to', 'exec:cat >/dev/null; [ "$POSTROOM_TOPIC" != bad ]', stdout=None, stderr=None)
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the largest message')
    assert postroom.stats()['failed_pending'] == 1
    finish(relay)
