# SPDX-License-Identifier: Apache-2.0
"""Relays that deliver keyed messages, and the order in which these reach a sink (D6)."""
import collections
import json
import os
import pathlib
import subprocess

from conftest import PROGRAM

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
# Short, so that what the killed have left behind comes back soon.
LEASE = '2s'

# A message leaves its mark and is then delivered; every fifth try fails before, by its process id.
SINKS = {
    'file': 'file:out?sync=no',
    'exec': 'exec:[ $(($$ % 5)) -gt 0 ] && echo "$POSTROOM_KEY $(cat)" >> out',
}


def arrived(path):
    """(key, payload) of what reached the sink, in the order it did; torn lines aside."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith('{'):
            try:
                message = json.loads(line)
            except ValueError:
                continue
            found.append((message['key'], message['payload']))
        elif len(fields := line.split()) == 2:  # a killed relay's child may see no payload
            found.append((fields[0], json.loads(fields[1])))
    return found


def first_deliveries(path):
    """The payloads of each key, in the order of their first delivery."""
    order = collections.defaultdict(dict)
    for key, payload in arrived(path):
        order[key].setdefault(payload)
    return {key: list(payloads) for key, payloads in order.items()}


def have_arrived(path, count):
    """Whether so many different ones have; reading them all takes its time."""
    lines = path.read_bytes().count(b'\n') if path.exists() else 0
    return lines >= count and len(set(arrived(path))) >= count


def enqueue(postroom, messages):
    """(key, payload) pairs, in one go."""
    postroom.ok('enqueue', '--ndjson', '-', input=''.join(
        json.dumps({'topic': 't', 'key': key, 'payload': payload}) + '\n'
        for key, payload in messages))


def begin_relay(postroom, sink):
    with open(pathlib.Path(postroom.cwd, 'relays.log'), 'ab') as log:
        return subprocess.Popen(
            [PROGRAM, 'relay', '--to', sink, '--lease', LEASE, '--batch-size', '7',
             '--max-attempts', '1000', '--base-delay', '10ms', '--max-delay', '50ms',
             '--poll-interval', '20ms'],
            cwd=postroom.cwd, env=postroom.environment(), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log)
