# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: running programs, and telling a figure with its target."""
import subprocess
import sys
import time

missed = []


def report(what, figures, target, ok):
    print(f'{what:33} {figures:72} {target:14} {"ok" if ok else "MISSED"}', flush=True)
    if not ok:
        missed.append(what)


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


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
