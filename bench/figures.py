# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: running programs, and telling a figure with its target."""
import os
import pathlib
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

missed = []


def report(what, figures, target, ok):
    print(f'{what:33} {figures:72} {target:14} {"ok" if ok else "MISSED"}', flush=True)
    if not ok:
        missed.append(what.strip())


def run(*command, env=None):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                          text=True, env={**os.environ, **(env or {})}).stdout


def in_turns(*measures, rounds):
    """What each measure gave in each round; every one goes first now and then."""
    values = [[] for _ in measures]
    for turn in range(rounds):
        for i in range(len(measures)):
            which = (i + turn) % len(measures)
            values[which].append(measures[which]())
    return values


def median(rounds):
    """Of each column of what the rounds gave."""
    return [statistics.median(column) for column in zip(*rounds)]


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def ratios(first, second):
    """Of the first columns, round by round: what has moods has much the same one in both."""
    return [one[0] / other[0] for one, other in zip(first, second)]


def span(values):
    return f'{min(values):.2f} to {max(values):.2f}'


def counts(path):
    """What bench/count_statements.c has counted: statements, transactions, those of the janitor."""
    return struct.unpack('qqq', pathlib.Path(path).read_bytes())


def processor_seconds(pid):
    return sum(int((task / 'schedstat').read_text().split()[0])
               for task in pathlib.Path('/proc', str(pid), 'task').iterdir()) / 1e9


def idle(command, counter, seconds, what):
    """A relay with a poll interval of a second that has nothing to do."""
    with tempfile.NamedTemporaryFile() as file:
        relay = subprocess.Popen([str(word) for word in command], env={
            **os.environ, 'LD_PRELOAD': counter, 'COUNT_STATEMENTS': file.name})
        time.sleep(5)  # its rests have grown to the whole interval by then
        before, busy = counts(file.name), processor_seconds(relay.pid)
        time.sleep(seconds)
        after, busy = counts(file.name), processor_seconds(relay.pid) - busy
        relay.terminate()
        relay.wait()
    looks, _, janitor = (last - first for first, last in zip(before, after))
    report(what, f'{100 * busy / seconds:.3f} % of a core; {looks / seconds:.2f} statements a poll '
           f'interval, and the janitor {janitor} in {seconds} s', 'under 0.2 %, 1',
           busy < 0.002 * seconds and looks <= seconds + 1)


def stops(command, output, what, is_busy, rounds=20):
    """From SIGTERM to the exit of a relay that delivers to a file as fast as it can."""
    times = []
    for _ in range(rounds):
        pathlib.Path(output).write_bytes(b'')
        relay = subprocess.Popen([str(word) for word in command])
        while not os.path.getsize(output):
            time.sleep(0.001)
        begun = time.monotonic()
        relay.send_signal(signal.SIGTERM)
        if relay.wait() != 0:
            sys.exit(f'bench: the relay ended with {relay.returncode}')
        times.append((time.monotonic() - begun) * 1000)
        if not is_busy():
            sys.exit('bench: there was not enough to do')
    report(what, f'median {statistics.median(times):.1f} ms, worst of {rounds} {max(times):.1f} ms',
           'under 1 s', max(times) < 1000)


def peak_memory(process):
    """The most memory a process had, in MiB, until it ends."""
    peak = 0
    while process.poll() is None:
        try:
            with open(f'/proc/{process.pid}/status', encoding='ascii') as file:
                for line in file:
                    if line.startswith('VmHWM:'):
                        peak = int(line.split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.02)
    if process.returncode != 0:
        sys.exit(f'bench: the relay ended with {process.returncode}')
    return peak / 1024
