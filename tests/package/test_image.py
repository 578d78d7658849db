# SPDX-License-Identifier: Apache-2.0
"""The container image. No container engine runs here: the root of the image, made by the same script, runs in
namespaces as the image describes it. The long form builds the Containerfile with buildah, in a bare Debian."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

import pytest

from conftest import PROGRAM, ROOT, sanitized, wait_until

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
CONTAINERFILE = ROOT / 'contrib' / 'container' / 'Containerfile'
pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason='only root can make the namespaces of a container'),
              pytest.mark.skipif(sanitized(), reason='an image has the ordinary program')]


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding='utf-8', **options)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def instructions():
    """Of the last stage: name and text, in order."""
    text = re.sub(r'\\\n\s*', ' ', re.sub(r'^#.*\n', '', CONTAINERFILE.read_text(), flags=re.MULTILINE))
    lines = [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]
    last = max(index for index, (name, _) in enumerate(lines) if name == 'FROM')
    return lines[last:]


def described():
    """What an engine would know of the image."""
    found = dict(instructions())
    return {'env': dict(word.split('=', 1) for word in shlex.split(found['ENV'])), 'user': found['USER'],
            'entrypoint': json.loads(found['ENTRYPOINT']), 'command': json.loads(found['CMD']), 'workdir': found['WORKDIR'],
            'health': json.loads(re.search(r'CMD (\[.*\])$', found['HEALTHCHECK'])[1]), 'signal': found['STOPSIGNAL']}


class Container:
    """A root in namespaces of its own, read-only, with a volume, as an ordinary user."""

    def __init__(self, root, tmp_path, image, *arguments):
        self.image, self.log, self.volume = image, tmp_path / 'log', tmp_path / 'volume'
        self.root = tmp_path / 'mounted'
        self.root.mkdir()
        self.volume.mkdir()
        os.chown(self.volume, *map(int, image['user'].split(':')))
        mounts = ('mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && mount --bind "$3" "$2$4" && mount -t proc proc "$2/proc" && '
                  'ip link set lo up && shift 4 && exec "$@"')
        self.process = subprocess.Popen(
            ['unshare', '--mount', '--pid', '--net', '--ipc', '--uts', '--fork', '--kill-child', 'sh', '-c', mounts, 'sh',
             root, self.root, self.volume, image['workdir'], *self.inside(*image['entrypoint'], *arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log.open('wb'), start_new_session=True)

    def inside(self, *command):
        """The command as the user of the image, without privileges, and with the environment of the image alone."""
        return ['setpriv', '--no-new-privs', 'env', '-i', *(f'{name}={value}' for name, value in self.image['env'].items()),
                '/usr/sbin/chroot', f'--userspec={self.image["user"]}', '--groups=', str(self.root), *map(str, command)]

    def children(self):
        return list(map(int, pathlib.Path(f'/proc/{self.process.pid}/task/{self.process.pid}/children').read_text().split()))

    def pid(self):
        """Of process 1 of the container, once it is the program."""
        def program():
            for child in self.children():
                if os.readlink(f'/proc/{child}/exe').endswith(self.image['entrypoint'][0]):
                    return child
            assert self.process.poll() is None, self.log.read_text()
            return None
        return wait_until(program, 'the program to start')

    def execute(self, *command):
        """As docker exec: status and output."""
        done = subprocess.run(['nsenter', f'--target={self.pid()}', '--mount', '--net', '--pid', *self.inside(*command)],
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8')
        return done.returncode, done.stdout

    def stop(self):
        os.kill(self.pid(), getattr(signal, self.image['signal']))
        return self.process.wait()

    def end(self):
        """Kills process 1, and the kernel all others. --kill-child does not: the program changed its user."""
        if self.process.poll() is None:
            for child in self.children():
                os.kill(child, signal.SIGKILL)
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    directory = tmp_path_factory.mktemp('image') / 'root'
    run(ROOT / 'contrib' / 'container' / 'assemble', pathlib.Path(PROGRAM).parent, directory)
    return directory


def check_image(root, tmp_path, image):
    """A relay of this image delivers from a volume, is healthy, and stops as asked."""
    container = Container(root, tmp_path, image, *image['command'], '--to', f'file:{image["workdir"]}/events.ndjson')
    try:
        wait_until(lambda: container.execute(*image['health'])[0] == 0, 'the container to be healthy')
        assert container.execute(*image['entrypoint'], 'enqueue', 'orders', '{"n": 1}')[0] == 0
        events = container.volume / 'events.ndjson'
        wait_until(lambda: events.exists() and '"n":1' in events.read_text().replace(' ', ''), 'the message to be delivered')
        status = dict(line.split(':\t', 1) for line in pathlib.Path(f'/proc/{container.pid()}/status').read_text().splitlines())
        assert set(status['Uid'].split()) == {image['user'].split(':')[0]} != {'0'}
        assert (int(status['CapEff'], 16), status['NoNewPrivs'], status['NSpid'].split()[-1]) == (0, '1', '1')
        # The root cannot be written, and there is no shell.
        mounts = pathlib.Path(f'/proc/{container.pid()}/mountinfo').read_text().splitlines()
        assert [line.split()[5].split(',')[0] for line in mounts if line.split()[4] == '/'] == ['ro']
        assert container.execute(*image['entrypoint'], '-d', '/tmp/shop.db', 'migrate')[0] == 1
        assert container.execute('/bin/sh', '-c', 'true')[0] == 127
        assert container.stop() == 0, container.log.read_text()
    finally:
        container.end()


def W1_root_of_the_image_runs_read_only_without_privileges(root, tmp_path):
    check_image(root, tmp_path, described())


def W1_health_check_of_the_image_fails_without_a_relay(root, tmp_path):
    image = described()
    container = Container(root, tmp_path, image, 'relay', '--admin', 'none', '--to', 'null:')
    try:
        assert container.execute(*image['health'])[0] == 1
        child = container.pid()
    finally:
        container.end()
    wait_until(lambda: not pathlib.Path(f'/proc/{child}').exists(), 'the processes of the container to end')


def W1_image_contains_only_the_program_and_its_libraries(root):
    files = [path for path in root.rglob('*') if path.is_file()]
    programs = [path.relative_to(root) for path in files if os.access(path, os.X_OK) and '.so' not in path.name]
    assert programs == [pathlib.Path('usr/bin/postroom')]
    assert not [path for path in root.rglob('*') if path.stat().st_mode & 0o6000]
    libraries = {path.name for path in files if '.so' in path.name}
    loaded = set(re.findall(r'(\S+\.so\S*) (?:=>|\()', run('ldd', PROGRAM))) - {'linux-vdso.so.1'}
    assert libraries == {pathlib.Path(name).name for name in loaded}
    assert (root / 'usr/share/doc/postroom/postroom.cdx.json').exists()
    if shutil.which('dpkg-query'):
        packages = {path.name for path in (root / 'var/lib/dpkg/status.d').iterdir()}
        assert {'libc6', 'ca-certificates'} <= packages
        assert packages == {path.name for path in (root / 'usr/share/doc').iterdir()} - {'postroom'}


def W1_image_names_its_labels_and_user():
    found = dict(instructions())
    assert found['FROM'] == 'scratch'
    labels = dict(word.split('=', 1) for word in shlex.split(found['LABEL']))
    assert {f'org.opencontainers.image.{name}' for name in ('title', 'description', 'licenses', 'version', 'revision', 'created')} <= set(labels)
    assert found['USER'].split(':')[0].isdigit() and found['USER'] != '0:0'
    assert re.search(r'assemble /build /image$', CONTAINERFILE.read_text(), re.MULTILINE) and found['COPY'] == '--from=build /image /'


@pytest.mark.skipif(not SOAK, reason='a whole build in a bare Debian: make soak')
@pytest.mark.skipif(not (ROOT / '.git').exists(), reason='not a git checkout')
def W1_containerfile_builds_with_buildah(tmp_path):
    """buildah builds without an engine; a bare Debian is the image that the first stage begins with."""
    run('tools/install', 'image', cwd=ROOT)
    options = ['--root', tmp_path / 'storage', '--runroot', tmp_path / 'run', '--storage-driver', 'vfs']
    builder = tmp_path / 'buildah'
    builder.write_text(f'#!/bin/sh\nexec buildah {shlex.join(map(str, options))} "$@"\n')
    builder.chmod(0o755)
    suite = re.search(r'^ARG DEBIAN=(\w+)$', CONTAINERFILE.read_text(), re.MULTILINE)[1]
    base = run(builder, 'from', 'scratch').split()[-1]
    run('mmdebstrap', '--variant=minbase', suite, tmp_path / 'debian.tar')
    run(builder, 'add', base, tmp_path / 'debian.tar', '/')
    run(builder, 'commit', base, f'docker.io/library/debian:{suite}-slim')
    try:
        run('tools/image', '--isolation=chroot', '--pull-never', cwd=ROOT, env={**os.environ, 'BUILDER': str(builder)})
        version = json.loads(run(PROGRAM, '--version', '--json'))['version']
        config = json.loads(run(builder, 'inspect', '--type', 'image', f'localhost/postroom:{version}'))['OCIv1']['config']
        image = described()
        assert (config['User'], config['Entrypoint'], config['Cmd']) == (image['user'], image['entrypoint'], image['command'])
        assert config['Labels']['org.opencontainers.image.version'] == version
        container = run(builder, 'from', '--pull-never', f'localhost/postroom:{version}').split()[-1]
        check_image(pathlib.Path(run(builder, 'mount', container).strip()), tmp_path, image)
    finally:
        run(builder, 'rm', '--all')
