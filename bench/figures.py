# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: running programs, and telling a figure with its target."""
import os
import statistics
import subprocess
import sys
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


def span(first, second):
    """From the worst to the best ratio of the first columns in one round."""
    ratios = [one[0] / other[0] for one, other in zip(first, second)]
    return f'{min(ratios):.2f} to {max(ratios):.2f}'


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
