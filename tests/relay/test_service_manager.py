# SPDX-License-Identifier: Apache-2.0
"""A service manager, a watchdog, process 1 of a container: all of them can rely on the relay."""
import ctypes
import os
import pathlib
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess

import pytest

from conftest import PATIENCE, PROGRAM, ROOT, wait_until
from relay_process import children_of, enqueue_many, ids_in, lines_of, processes_with, sanitized
from servers.launch import free_port

WATCHDOG_USEC = '200000'


class Manager:
    """The socket of a service manager, and all that was said to it, in order."""

    def __init__(self, address):
        self.address, self.said = address, []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace('@', '\0', 1) if address[0] == '@' else address)
        self.socket.setblocking(False)

    def environment(self, **more):
        return {'NOTIFY_SOCKET': self.address, **more}

    def received(self):
        while True:
            try:
                self.said.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return self.said

    def wait_for(self, start, count=1):
        """Waits until so many messages with this beginning were received."""
        wait_until(lambda: sum(text.startswith(start) for text in self.received()) >= count, start)

    def states(self):
        return [text for text in self.received() if not text.startswith(('STATUS=', 'WATCHDOG='))]


@pytest.fixture
def manager(tmp_path):
    manager = Manager(str(tmp_path / 'notify'))
    yield manager
    manager.socket.close()


def thread_of(pid, name):
    """The id of the thread of that name, once there is one."""
    def find():
        for task in os.listdir(f'/proc/{pid}/task'):
            try:
                if pathlib.Path(f'/proc/{pid}/task/{task}/comm').read_text().strip() == name:
                    return int(task)
            except OSError:  # it has ended meanwhile
                pass
        return None
    return wait_until(find, f'the thread {name}')


def count_checks(pid):
    """How often the main thread has gone to sleep, which it does between two checks of the other threads."""
    status = pathlib.Path(f'/proc/{pid}/task/{pid}/status').read_text()
    return int(status.split('\nvoluntary_ctxt_switches:')[1].split()[0])


def wait_for_checks(pid, count):
    before = count_checks(pid)
    wait_until(lambda: count_checks(pid) >= before + count, 'the main thread to check the other threads')


class Frozen:
    """A thread that does not move until it is thawed, or its process ends."""
    SEIZE, INTERRUPT, DETACH, WAIT_ALL = 0x4206, 0x4207, 17, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def __init__(self, thread):
        self.thread = thread
        if self.libc.ptrace(self.SEIZE, thread, None, None) < 0:
            pytest.skip(f'ptrace is not permitted here: {os.strerror(ctypes.get_errno())}')
        assert self.libc.ptrace(self.INTERRUPT, thread, None, None) == 0
        os.waitpid(thread, self.WAIT_ALL)

    def sleeps(self):
        """Whether it was stopped in poll(), ppoll() or the restart of one, by their numbers."""
        words = pathlib.Path(f'/proc/{self.thread}/syscall').read_text().split()
        return words[0] in ('7', '271', '219')

    def let_go(self):
        return self.libc.ptrace(self.DETACH, self.thread, None, None) == 0

    def wait_for_end(self):
        wait_until(lambda: os.waitpid(self.thread, self.WAIT_ALL | os.WNOHANG)[0], 'the thread to end')


@pytest.fixture
def freeze(postroom):
    """freeze(thread) stops one thread; none is left so, or its process could not be waited for."""
    all_frozen = []

    def start(thread):
        all_frozen.append(Frozen(thread))
        return all_frozen[-1]
    yield start
    for frozen in all_frozen:
        frozen.let_go()


@pytest.mark.parametrize('kind', ['path', 'abstract'])
def W1_service_manager_is_notified_of_ready_and_stopping(postroom, tmp_path, kind):
    path = str(tmp_path / 'notify')
    manager = Manager(path if kind == 'path' else f'@{path}')
    relay = postroom.start('relay', '--to', 'file:out', env=manager.environment(),
                           stderr=subprocess.DEVNULL)
    manager.wait_for('READY=1')
    assert manager.states() == ['READY=1']
    relay.terminate()
    assert relay.wait() == 0
    assert manager.states() == ['READY=1', 'STOPPING=1']
    manager.socket.close()


def W1_relay_without_its_database_is_not_ready(postroom, manager):
    port = free_port()
    relay = postroom.start('relay', '--to', 'null:', '--db', f'postgres://x@127.0.0.1:{port}/x',
                           env=manager.environment())
    while b'OUTBOX_STORE_TROUBLE' not in (line := relay.stderr.readline()):
        assert line
    assert manager.received() == ['STATUS=opening the database']
    relay.terminate()
    assert relay.wait() == 0
    assert manager.states() == ['STOPPING=1']


def W1_short_drain_reports_ready(postroom, manager):
    postroom.enqueue()
    postroom.ok('relay', '--drain', '--to', 'null:', env=manager.environment())
    assert manager.states() == ['READY=1', 'STOPPING=1']


def W1_relay_that_cannot_start_never_reports_ready(postroom, manager):
    postroom.fails(2, 'relay', '--to', 'file:', env=manager.environment())
    assert manager.states() == ['STOPPING=1']


def W1_status_reports_progress_and_problems(postroom, manager):
    postroom.enqueue()
    relay = postroom.start('relay', '--to', 'exec:exit 127', env=manager.environment(),
                           stderr=subprocess.DEVNULL)
    manager.wait_for('STATUS=delivered 0, failed 0, dead 0; the sink has been down for ')
    relay.terminate()
    assert relay.wait() == 0
    assert all('\n' not in text for text in manager.received() if text.startswith('STATUS='))


def D7_reload_is_reported_before_and_after(postroom, manager, tmp_path):
    postroom.enqueue()
    relay = postroom.start('relay', '--to', 'file:out', env=manager.environment(),
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: lines_of(tmp_path / 'out'), 'the first message')
    manager.wait_for('READY=1')
    os.rename(tmp_path / 'out', tmp_path / 'old')
    relay.send_signal(signal.SIGHUP)
    manager.wait_for('READY=1', 2)
    ready, reloading, again = manager.states()
    assert (ready, again) == ('READY=1', 'READY=1')
    name, number = reloading.removeprefix('RELOADING=1\n').split('=')
    assert name == 'MONOTONIC_USEC' and int(number) > 0
    postroom.enqueue()
    wait_until(lambda: lines_of(tmp_path / 'out'), 'the file to be opened again')
    relay.terminate()
    assert relay.wait() == 0


@pytest.mark.parametrize('address', ['elsewhere', '@', '/' + 'x' * 200])
def W1_unusable_notify_socket_is_reported_and_changes_nothing(postroom, address):
    postroom.enqueue()
    result = postroom.ok('relay', '--drain', '--to', 'null:', '--log-level', 'off',
                         env={'NOTIFY_SOCKET': address})
    line, = result.err.splitlines()
    assert line.startswith(f'postroom: relay: NOTIFY_SOCKET "{address[:100]}')
    assert line.endswith('; the service manager is not notified')
    assert postroom.stats()['delivered'] == 1


def K3_command_cannot_reach_the_service_manager(postroom, manager, tmp_path):
    postroom.enqueue()
    postroom.ok('relay', '--drain', '--to', 'exec:env > variables', env=manager.environment(
        WATCHDOG_USEC=WATCHDOG_USEC))
    variables = (tmp_path / 'variables').read_text()
    assert 'POSTROOM_ID=' in variables
    assert 'NOTIFY_SOCKET' not in variables and 'WATCHDOG' not in variables


def W1_the_watchdog_of_another_process_is_left_alone(postroom, manager):
    relay = postroom.start('relay', '--to', 'null:', stderr=subprocess.DEVNULL, env=manager.environment(
        WATCHDOG_USEC=WATCHDOG_USEC, WATCHDOG_PID=str(os.getpid())))
    manager.wait_for('READY=1')
    wait_for_checks(relay.pid, 5)
    assert 'WATCHDOG=1' not in manager.received()
    relay.terminate()
    assert relay.wait() == 0


def D5_locked_database_does_not_trigger_the_watchdog(postroom, db, manager):
    """The holder of the lock keeps the workers waiting much longer than any step of theirs may take."""
    postroom.ok('migrate')
    holder = sqlite3.connect(db, timeout=PATIENCE, isolation_level=None)
    relay = postroom.start('relay', '--to', 'null:', '--lease', '3s',
                           env=manager.environment(WATCHDOG_USEC=WATCHDOG_USEC))
    manager.wait_for('WATCHDOG=1')
    holder.execute('BEGIN IMMEDIATE')
    holder.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    manager.wait_for('WATCHDOG=1', len(manager.received()) + 80)
    holder.execute('COMMIT')
    holder.close()
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'the message')
    relay.terminate()
    assert b'OUTBOX_WORKER_STUCK' not in relay.stderr.read()
    assert relay.wait() == 0


@pytest.mark.parametrize('name', ['worker 1', 'janitor'])
def W1_the_watchdog_is_not_fed_while_a_thread_hangs(postroom, manager, freeze, name):
    relay = postroom.start('relay', '--to', 'null:', '--lease', '3s',
                           env=manager.environment(WATCHDOG_USEC=WATCHDOG_USEC))
    manager.wait_for('WATCHDOG=1')
    frozen = freeze(thread_of(relay.pid, name))
    manager.wait_for(f'STATUS={name} hangs: ')
    before = manager.received()[:]
    wait_for_checks(relay.pid, 10)
    assert 'WATCHDOG=1' not in manager.received()[len(before):]
    assert frozen.let_go()
    manager.wait_for('WATCHDOG=1', before.count('WATCHDOG=1') + 3)
    relay.terminate()
    log = relay.stderr.read().decode()
    assert relay.wait() == 0
    assert f'OUTBOX_WORKER_STUCK thread="{name}"' in log.replace('=janitor', '="janitor"')
    assert log.index('OUTBOX_WORKER_STUCK') < log.index('OUTBOX_WORKER_BACK')


def stop_with_a_thread_that_hangs(process, freeze, name, command='relay'):
    frozen = freeze(thread_of(process.pid, name))
    # Elsewhere it may hold what the others want, and then they hang too.
    while not frozen.sleeps():
        assert frozen.let_go()
        frozen = freeze(frozen.thread)
    process.terminate()
    frozen.wait_for_end()
    assert process.wait() == 1
    assert f'postroom: {command}: {name} hangs and does not stop; '.encode() in process.stderr.read()


def D4_hung_worker_does_not_prevent_stop_of_relay(postroom, freeze):
    relay = postroom.start('relay', '--to', 'null:', '--lease', '3s', '--shutdown-grace', '100ms')
    stop_with_a_thread_that_hangs(relay, freeze, 'worker 2')


def D4_stop_does_not_wait_for_the_lease(postroom, freeze, tmp_path):
    postroom.enqueue()
    relay = postroom.start('relay', '--to', 'exec:echo x >> begun; sleep 1000', '--lease', '1h',
                           '--publish-timeout', '20m', '--workers', '1', '--shutdown-grace', '0s')
    wait_until(lambda: ids_in(tmp_path / 'begun'), 'the command to begin')
    stop_with_a_thread_that_hangs(relay, freeze, 'worker 1')


def D4_hung_intake_does_not_prevent_stop_of_consumer(postroom, freeze):
    consumer = postroom.start('consume', '--handler', 'h', '--from', '-', '--exec', 'true', '--shutdown-grace', '100ms',
                              stdin=subprocess.PIPE)
    stop_with_a_thread_that_hangs(consumer, freeze, 'intake 1', 'consume')


def W1_worker_that_cannot_continue_ends_the_relay(postroom, manager, sql):
    enqueue_many(postroom, 3)
    relay = postroom.start('relay', '--to', 'stdout:', '--workers', '4', '--log-level', 'warn',
                           env=manager.environment())
    manager.wait_for('READY=1')
    wait_until(lambda: postroom.stats()['delivered'] == 3, 'the first messages')
    relay.stdout.close()
    postroom.enqueue()
    assert relay.wait() == 1
    assert relay.stderr.read().startswith(b'postroom: stdout was closed by its reader; ')
    assert manager.states() == ['READY=1', 'STOPPING=1']
    assert sql("SELECT count(*) FROM postroom_outbox WHERE status = 'pending'") == [(1,)]


@pytest.mark.skipif(sanitized(), reason='a sanitizer needs more address space than there is')
def W1_worker_that_cannot_start_ends_the_relay(postroom, manager):
    def little_room():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
    postroom.ok('migrate')
    text = postroom.fails(1, 'relay', '--to', 'null:', '--workers', '256', env=manager.environment(),
                          preexec_fn=little_room)
    assert text.startswith('starting a thread: ')
    assert manager.states() == ['STOPPING=1']


def unshare():
    """A command line before which another becomes process 1, or None."""
    words = ['unshare', '--pid', '--fork', '--kill-child']
    for command in (words, [*words, '--user', '--map-root-user']):
        if shutil.which('unshare') and subprocess.run([*command, 'true'], check=False,
                                                      stderr=subprocess.DEVNULL).returncode == 0:
            return command
    return None


@pytest.fixture
def first(postroom):
    """first('relay', …) starts the program as process 1; gives unshare, and the relay's id out here."""
    def start(*args, **options):
        parent = subprocess.Popen([*command, PROGRAM, *args], cwd=postroom.cwd,
                                  env=postroom.environment(options.pop('env', None)),
                                  stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        postroom.processes.append(parent)

        def find():
            return set(children_of(parent.pid)) & set(processes_with(PROGRAM))
        return parent, wait_until(find, 'process 1').pop()
    command = unshare()
    if not command:
        pytest.skip('a process namespace is not permitted here')
    return start


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def D4_relay_as_process_1_stops_on_signal(postroom, first, manager, tmp_path, number):
    postroom.enqueue()
    parent, pid = first('relay', '--to', 'file:out', env=manager.environment())
    wait_until(lambda: lines_of(tmp_path / 'out'), 'the first message')
    manager.wait_for('READY=1')
    os.kill(pid, number)
    assert parent.wait() == 0
    assert manager.states() == ['READY=1', 'STOPPING=1']
    assert postroom.stats()['delivered'] == 1


def K3_relay_as_process_1_reaps_orphans(postroom, first, tmp_path):
    os.mkfifo(tmp_path / 'gate')
    enqueue_many(postroom, 5)
    parent, pid = first('relay', '--to', 'exec:(echo x >> begun; read word < gate) > /dev/null 2>&1 &')
    wait_until(lambda: len(ids_in(tmp_path / 'begun')) == 5, 'what the commands leave behind')
    wait_until(lambda: postroom.stats()['delivered'] == 5, 'the commands to end')
    wait_until(lambda: len(children_of(pid)) == 5, 'the orphans to come')
    gate = os.open(tmp_path / 'gate', os.O_WRONLY)
    os.close(gate)
    wait_until(lambda: not children_of(pid), 'the orphans to be reaped')
    os.kill(pid, signal.SIGTERM)
    assert parent.wait() == 0
