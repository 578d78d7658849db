# SPDX-License-Identifier: Apache-2.0
"""The units of contrib/systemd."""
import re
import shutil
import signal
import socket
import subprocess

import pytest

from conftest import PATIENCE, PROGRAM, ROOT

UNITS = ['postroom-consume@.service', 'postroom-relay.service', 'postroom-relay@.service']
pytestmark = pytest.mark.skipif(not shutil.which('systemd-analyze'), reason='systemd-analyze is missing')


def analyze(*args):
    return subprocess.run(['systemd-analyze', *args], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding='utf-8')


@pytest.fixture(params=UNITS)
def unit(request, tmp_path):
    """The unit as it is installed; of a template, one instance."""
    path = tmp_path / request.param.replace('@.', '@shop.')
    text = (ROOT / 'contrib' / 'systemd' / f'{request.param}.in').read_text()
    path.write_text(text.replace('@bindir@/postroom', PROGRAM))
    return path


def W1_installed_unit_is_well_formed(unit):
    done = analyze('verify', '--man=no', '--recursive-errors=no', unit)
    assert done.returncode == 0 and unit.name not in done.stdout, done.stdout


def W1_sandbox_of_installed_unit_scores_at_most_1_5(unit):
    done = analyze('security', '--offline=true', '--threshold=15', unit)
    assert done.returncode == 0 and re.search(r'exposure level for \S+: [\d.]+ OK', done.stdout), done.stdout[-500:]
    relaxed = unit.with_name('relaxed.service')
    relaxed.write_text(re.sub(r'^(Protect|Private|SystemCall)\w+=.*\n', '', unit.read_text(), flags=re.MULTILINE))
    assert analyze('security', '--offline=true', '--threshold=15', relaxed).returncode != 0


@pytest.mark.parametrize('unit', UNITS[1:], indirect=True)
def W1_unit_is_not_restarted_with_a_wrong_configuration(unit, postroom, tmp_path):
    text = unit.read_text()
    assert '\nRestartPreventExitStatus=2\n' in text
    command = re.search(r'^ExecStart=(.*)$', text, re.MULTILINE)[1]
    words = re.sub(r'/etc/postroom/\S+\.yaml', str(tmp_path / 'relay.yaml'), command).split()
    assert words[0] == PROGRAM and str(tmp_path / 'relay.yaml') in words
    (tmp_path / 'relay.yaml').write_text('database: [\n')
    assert postroom(*words[1:]).code == 2
    (tmp_path / 'relay.yaml').write_text(f'database: sqlite:{tmp_path}/shop.db\nsinks:\n  log: {{ url: "null:" }}\n'
                                         'routes:\n  - { topic: "*", sink: log }\n')
    postroom.ok(*words[1:], '--drain')


def W1_consumer_of_the_unit_notifies_systemd_and_stops(postroom, tmp_path):
    text = (ROOT / 'contrib' / 'systemd' / 'postroom-consume@.service.in').read_text()
    assert '\nType=notify\n' in text and '\nExecReload=' not in text
    words = re.search(r'^ExecStart=@bindir@/postroom (.*)$', text, re.MULTILINE)[1].replace('%i', 'mail')
    postroom.ok('migrate')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / 'notify'))
        manager.settimeout(PATIENCE)
        consumer = postroom.start(*words.replace('$CONSUME_OPTIONS', '--exec true').split(),
                                  env={'NOTIFY_SOCKET': str(tmp_path / 'notify')})
        while b'READY=1' not in manager.recv(4096).split(b'\n'):
            pass
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait(PATIENCE) == 0


def W1_documented_drop_ins_of_the_unit_are_well_formed(tmp_path):
    """Every [Service] block of docs/running.md, as systemctl edit would write it."""
    text = (ROOT / 'contrib' / 'systemd' / 'postroom-relay.service.in').read_text()
    unit = tmp_path / 'postroom-relay.service'
    unit.write_text(text.replace('@bindir@/postroom', PROGRAM))
    blocks = re.findall(r'^    \[Service\]\n(?:    .*\n)+', (ROOT / 'docs' / 'running.md').read_text(), re.MULTILINE)
    assert len(blocks) >= 3
    (tmp_path / 'postroom-relay.service.d').mkdir()
    for number, block in enumerate(blocks):
        drop_in = tmp_path / 'postroom-relay.service.d' / f'{number}.conf'
        drop_in.write_text(re.sub('^    ', '', block, flags=re.MULTILINE))
        done = analyze('verify', '--man=no', '--recursive-errors=no', unit)
        assert done.returncode == 0 and unit.name not in done.stdout and drop_in.name not in done.stdout, done.stdout
        drop_in.write_text('[Service]\nProtectHom=read-only\n')
        assert 'ProtectHom' in analyze('verify', '--man=no', '--recursive-errors=no', unit).stdout
        drop_in.unlink()
