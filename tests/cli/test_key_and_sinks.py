# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess

import pytest

from conftest import ROOT


def vectors():
    for line in (ROOT / 'tests' / 'key_vectors.tsv').read_text().splitlines():
        if line and not line.startswith('#'):
            *parts, key = line.split('\t')
            yield [part for part in parts if part != r'\N'], key


def I1_the_key_command_agrees_with_the_table_of_vectors(postroom):
    count = 0
    for parts, key in vectors():
        if key == 'invalid':
            assert 'ENTITY' in postroom.fails(1, 'key', '--', *parts)
        else:
            assert postroom.ok('key', '--', *parts).out == key + '\n', parts
        count += 1
    assert count > 20


def I1_the_key_is_an_object_in_json(postroom, tmp_path):
    key = postroom.ok('key', 'a', 'b', 'c', 'd').out.strip()
    assert postroom.ok('key', 'a', 'b', 'c', 'd', '--json').object == {'key': key}
    assert os.listdir(tmp_path) == []


def test_sinks_lists_built_in_sinks(postroom):
    names = [line.split('\t')[0] for line in postroom.ok('sinks').lines]
    assert names[:4] == ['null', 'stdout', 'file', 'exec']
    objects = postroom.ok('sinks', '--json').objects
    assert [sink['name'] for sink in objects] == names
    for sink in objects:
        assert list(sink) == ['name', 'schemes', 'summary', 'example', 'params']
        assert sink['example'].startswith(tuple(f'{scheme}:' for scheme in sink['schemes']))


def test_sinks_of_one_name_shows_its_settings(postroom):
    assert re.match('file: ', postroom.ok('sinks', 'file').out)
    assert postroom.ok('sinks', 'file:', '--json').object['name'] == 'file'
    line = postroom.fails(1, 'sinks', 'fille')
    assert 'fille' in line and 'file' in line.replace('fille', '')


@pytest.mark.parametrize('sink', ['amqps', 'nats'])
def K8_encrypted_key_is_refused_without_a_prompt(postroom, tmp_path, sink):
    """A relay that waits for a password on its terminal, or takes it from stdin, would not start by itself."""
    if sink[:4] not in postroom.ok('sinks').out:
        pytest.skip(f'built without {sink}')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-subj', '/CN=us',
                    '-passout', 'pass:hush', '-keyout', 'locked.pem', '-out', 'cert.pem'],
                   cwd=tmp_path, check=True, capture_output=True)
    line = postroom.fails(2, 'relay', '--drain', '--to', f'{sink}://localhost/x?cert=cert.pem&key=locked.pem',
                          input='hush\n', start_new_session=True)
    assert 'locked.pem' in line and 'hush' not in line
