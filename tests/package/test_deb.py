# SPDX-License-Identifier: Apache-2.0
"""The Debian packages in a bare system, which systemd starts in namespaces of its own.

The maintainer scripts and the units run as they are. The system shares the network, so that apt can fetch packages.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import ROOT, sanitized, wait_until

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
DEBS = os.environ.get('POSTROOM_DEBS')  # built by an earlier make deb; otherwise the test builds them
VERSION = re.search(r"^  version: '(.*)',$", (ROOT / 'meson.build').read_text(), re.MULTILINE)[1]
pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason='only root can make a bare system'),
              pytest.mark.skipif(not shutil.which('mmdebstrap'), reason='mmdebstrap is missing'),
              pytest.mark.skipif(not DEBS and not (ROOT / '.git').exists(), reason='not a git checkout'),
              pytest.mark.skipif(sanitized(), reason='packages have the ordinary program')]
PACKAGES = ['libpostroom-dev', 'libpostroom0', 'postroom', 'postroom-doc']
# Prepares the root for systemd as a container engine does: a control group, few devices, no privileges over the kernel.
BOOT = r'''
root=$1 group=$2
mount --make-rprivate /
mount -t cgroup2 none "$group"
mkdir "$group/postroom-$3"
echo 0 >"$group/postroom-$3/cgroup.procs"
umount "$group"
exec unshare --cgroup sh -ec '
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind "$1/proc/sys" "$1/proc/sys"
mount -o remount,bind,ro "$1/proc/sys"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t cgroup2 none "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=755 none "$1/run"
mount -t tmpfs -o mode=755 none "$1/dev"
for device in null zero full random urandom tty; do
	touch "$1/dev/$device"
	mount --bind "/dev/$device" "$1/dev/$device"
done
mkdir "$1/dev/pts" "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
cd "$1"
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
hostname bare
exec env -i container=postroom-test setpriv \
	--bounding-set=-audit_control,-audit_read,-mknod,-sys_boot,-sys_module,-sys_rawio,-sys_time \
	/lib/systemd/systemd --unit=sysinit.target
' sh "$root"
'''
# The lease is longer than the test waits: no message may wait for the lease of the old relay to expire.
CONFIGURATION = '''database: sqlite:/var/lib/postroom/{name}.db
sinks:
  log: {{ url: "file:/var/lib/postroom/${{credential:file}}-{name}" }}
routes:
  - {{ sink: log }}
relay:
  lease: 1h
'''
WAITING = 'database: postgres://relay@127.0.0.1:1/shop\nsinks: { log: { url: "null:" } }\nroutes: [ { sink: log } ]\n'
CREDENTIAL = '[Service]\nLoadCredential=file:/etc/postroom/secrets/file\n'
SERVICES = ['postroom-relay', 'postroom-relay@shop', 'postroom-consume@mail']


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding='utf-8', **options)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


class Bare:
    """A minimal Debian in a directory, with the packages in /packages."""

    def __init__(self, root, directory):
        self.root, self.group, self.leader = root, directory / 'group', None
        self.group.mkdir()
        self.process = subprocess.Popen(['unshare', '--mount', '--pid', '--uts', '--ipc', '--fork', 'sh', '-ec', BOOT, 'sh',
                                         root, self.group, str(os.getpid())], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8')

    def start(self):
        wait_until(self.started, 'systemd to start')
        if self.leader is None:
            pytest.skip(f'systemd cannot be started here: {self.process.stdout.read()[-300:]}')
        wait_until(lambda: self.execute('systemctl', 'is-system-running').stdout in ('running\n', 'degraded\n'), 'systemd')

    def started(self):
        """Whether process 1 is systemd, or could not become it."""
        if self.process.poll() is not None:
            return True
        children = pathlib.Path(f'/proc/{self.process.pid}/task/{self.process.pid}/children').read_text().split()
        if children and os.readlink(f'/proc/{children[0]}/exe').endswith('/systemd/systemd'):
            self.leader = int(children[0])
        return self.leader is not None

    def end(self):
        if self.leader is None:
            self.process.kill()
            self.process.wait()
            return
        os.kill(self.leader, signal.SIGKILL)
        self.process.wait()
        run('unshare', '--mount', 'sh', '-ec', 'mount -t cgroup2 none "$1" && find "$1/postroom-$2" -depth -type d -exec rmdir {} +',
            'sh', self.group, os.getpid())

    def execute(self, *command):
        return subprocess.run(['nsenter', f'--target={self.leader}', '--mount', '--pid', '--uts', '--ipc', '--cgroup', 'env', '-i',
                               'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL=C.UTF-8',
                               'DEBIAN_FRONTEND=noninteractive', *command], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding='utf-8')

    def __call__(self, *command):
        done = self.execute(*command)
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def path(self, name):
        return self.root / name.lstrip('/')

    def write(self, name, text):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def apt(self, *words):
        return self('apt-get', '-y', '-q', '--no-install-recommends', *words)

    def package(self, name):
        return self.execute('dpkg-query', '-W', '-f', '${db:Status-Abbrev} ${Version}', name).stdout.strip()

    def show(self, service, name):
        return self('systemctl', 'show', '--value', f'--property={name}', service).strip()

    def journal(self, service):
        return self('journalctl', '--no-pager', '--output=cat', f'--unit={service}')

    def enqueue(self, number, name='postroom'):
        self('postroom', '-d', f'/var/lib/postroom/{name}.db', 'enqueue', 'orders', json.dumps({'n': number}))

    def delivered(self, name='postroom'):
        events = self.path(f'/var/lib/postroom/events-{name}')
        return [json.loads(line)['payload']['n'] for line in events.read_text().splitlines()] if events.exists() else []


def make_next_version(old, new, tmp_path):
    """The same package as version 0.2.0, with the program that has one migration more."""
    tree = tmp_path / 'next'
    run('dpkg-deb', '-R', old, tree)
    control = (tree / 'DEBIAN' / 'control').read_text()
    (tree / 'DEBIAN' / 'control').write_text(control.replace(f'\nVersion: {VERSION}\n', '\nVersion: 0.2.0\n'))
    shutil.copy(ROOT / 'build' / 'tests' / 'postroom-0.2.0', tree / 'usr' / 'bin' / 'postroom')
    run('strip', tree / 'usr' / 'bin' / 'postroom')
    run('dpkg-deb', '--root-owner-group', '-b', tree, new)


@pytest.fixture(scope='module')
def bare(tmp_path_factory):
    directory = tmp_path_factory.mktemp('bare')
    suite = run('sh', '-c', '. /etc/os-release && echo $VERSION_CODENAME').strip()
    made = subprocess.run(['mmdebstrap', '--variant=minbase', '--include=systemd', suite, directory / 'root'], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8')
    if made.returncode != 0 and not SOAK:
        pytest.skip(f'no bare system can be made here: {made.stdout[-300:]}')
    assert made.returncode == 0, made.stdout[-3000:]
    packages = pathlib.Path(DEBS or directory / 'debs')
    if not DEBS:
        run(ROOT / 'tools' / 'deb', packages)
    root = directory / 'root'
    shutil.copy('/etc/resolv.conf', root / 'etc' / 'resolv.conf')
    (root / 'packages').mkdir()
    for package in PACKAGES:
        found = list(packages.glob(f'{package}_*.deb'))
        assert len(found) == 1, f'{package}: {found}'
        shutil.copy(found[0], root / 'packages' / f'{package}.deb')
    make_next_version(root / 'packages' / 'postroom.deb', root / 'packages' / 'next.deb', directory)
    system = Bare(root, directory)
    try:
        system.start()
        system.apt('update')
        yield system
    finally:
        system.end()
        shutil.rmtree(directory, ignore_errors=True)


def W1_package_installs_without_starting_anything(bare):
    bare.apt('install', *(f'/packages/{package}.deb' for package in PACKAGES))
    assert [bare.package(package) for package in PACKAGES] == [f'ii  {VERSION}'] * 4
    assert bare('systemctl', 'list-units', '--all', '--no-legend', 'postroom*') == ''
    assert bare.execute('systemctl', 'is-enabled', *SERVICES).stdout.split() == ['disabled'] * 3
    assert bare('postroom', '--version').split()[-1] == VERSION
    assert bare('postroom', '-c', '/etc/postroom/postroom.yaml', '--json', '--version')
    for unit in ('postroom-relay', 'postroom-relay@', 'postroom-consume@'):
        assert 'ExecStart=/usr/bin/postroom' in bare.path(f'/lib/systemd/system/{unit}.service').read_text()
    assert not list(bare.path('/etc/systemd/system').glob('*.wants/postroom*'))


def W1_package_has_its_manual_pages_completions_and_documentation(bare):
    for name in ('man1/postroom.1.gz', 'man1/postroom-relay.1.gz', 'man1/postroom-list.1.gz', 'man5/postroom.yaml.5.gz'):
        assert f'/usr/share/man/{name}' in bare('dpkg', '-L', 'postroom').split()
    completions = ('bash-completion/completions/postroom', 'zsh/vendor-completions/_postroom',
                   'fish/vendor_completions.d/postroom.fish')
    assert {f'/usr/share/{name}' for name in completions} <= set(bare('dpkg', '-L', 'postroom').split())
    assert '/usr/share/postroom/postgres-roles.sql' in bare('dpkg', '-L', 'postroom').split()
    assert '/usr/share/doc/postroom-doc/html/index.html' in bare('dpkg', '-L', 'postroom-doc').split()
    assert '/usr/share/doc/postroom-doc/examples/order.py' in bare('dpkg', '-L', 'postroom-doc').split()
    assert '/usr/include/postroom.h' in bare('dpkg', '-L', 'libpostroom-dev').split()


def W1_service_without_a_configuration_fails_once_and_says_why(bare):
    """The file of the package has comments only."""
    assert bare.execute('systemctl', 'start', 'postroom-relay').returncode == 1
    assert (bare.show('postroom-relay', 'ActiveState'), bare.show('postroom-relay', 'NRestarts')) == ('failed', '0')
    assert 'postroom: ' in bare.journal('postroom-relay')


def W1_commands_in_the_packaged_configuration_start_the_relay(bare):
    """All but migrate: on SQLite, the relay creates the tables."""
    commands = re.findall(r'^#   (.*)$', bare.path('/etc/postroom/postroom.yaml').read_text(), re.MULTILINE)
    assert [command.split()[-1] for command in commands[1:]] == ['--config-only', 'migrate', 'postroom-relay']
    bare.write('/etc/postroom/postroom.yaml', 'database: sqlite:/var/lib/postroom/first.db\n'
               'sinks: { log: { url: "file:/var/lib/postroom/events-${FIRST}" } }\nroutes: [ { sink: log } ]\n')
    bare.write('/etc/default/postroom', "FIRST='first'\n")
    bare.path('/etc/default/postroom').chmod(0o600)
    bare('sh', '-ec', '\n'.join(command for command in commands if not command.endswith(' migrate')))
    bare.enqueue(0, 'first')
    wait_until(lambda: bare.delivered('first') == [0], 'the message to be delivered')
    bare('systemctl', 'disable', '--now', 'postroom-relay')
    bare.path('/etc/default/postroom').unlink()


def W1_service_delivers_in_its_sandbox_and_reloads(bare):
    bare.write('/etc/postroom/postroom.yaml', CONFIGURATION.format(name='postroom'))
    bare.write('/etc/postroom/secrets/file', 'events\n')
    bare.path('/etc/postroom/secrets/file').chmod(0o600)
    bare.write('/etc/systemd/system/postroom-relay.service.d/override.conf', CREDENTIAL)
    bare.write('/etc/systemd/system/postroom-relay@.service.d/override.conf', CREDENTIAL)
    bare('systemctl', 'daemon-reload')
    bare('systemctl', 'enable', '--now', 'postroom-relay')
    bare.enqueue(0)
    wait_until(lambda: bare.delivered() == [0], 'the message to be delivered')
    process = bare('cat', f'/proc/{bare.show("postroom-relay", "MainPID")}/status').splitlines()
    status = dict(line.split(':\t', 1) for line in process)
    assert '0' not in status['Uid'].split() and int(status['CapEff'], 16) == 0
    assert (status['NoNewPrivs'], status['Seccomp']) == ('1', '2')
    wait_until(lambda: bare.show('postroom-relay', 'StatusText').startswith('delivered 1,'), 'the status')
    bare('systemctl', 'reload', 'postroom-relay')
    wait_until(lambda: 'OUTBOX_RELOADED' in bare.journal('postroom-relay'), 'the reload')


def W1_services_of_all_units_work_side_by_side(bare):
    """The relays share a user and a state directory. The consumers have another user, so they have another directory."""
    bare.write('/etc/postroom/shop.yaml', CONFIGURATION.format(name='shop'))
    bare.write('/etc/default/postroom-consume-mail', 'POSTROOM_DB=/var/lib/postroom-consume/mail.db\n'
               'CONSUME_OPTIONS=--exec "cat >>/var/lib/postroom-consume/mail"\n')
    bare('systemctl', 'start', 'postroom-relay@shop', 'postroom-consume@mail')
    bare.enqueue(1)
    wait_until(lambda: bare.delivered() == [0, 1], 'the first relay to deliver')
    bare.enqueue(2, 'shop')
    wait_until(lambda: bare.delivered('shop') == [2], 'the second relay to deliver')
    bare('postroom', '-d', '/var/lib/postroom-consume/mail.db', 'inbox', 'submit', 'mail', 'order-1', '"paid"')
    mail = bare.path('/var/lib/postroom-consume/mail')
    wait_until(lambda: mail.exists() and mail.read_text().strip() == '"paid"', 'the command of the consumer')
    bare('systemctl', 'reload', 'postroom-relay')  # opens the files again
    wait_until(lambda: bare.journal('postroom-relay').count('OUTBOX_RELOADED') == 2, 'the reload')
    assert [line for service in SERVICES for line in bare.journal(service).splitlines() if re.search('level=(warn|error)', line)] == []


def W1_services_continue_through_an_upgrade_of_the_package(bare):
    old = {service: bare.show(service, 'MainPID') for service in SERVICES}
    bare('systemctl', 'start', 'postroom-relay@spare.service', '--no-block')
    wait_until(lambda: bare.show('postroom-relay@spare', 'ActiveState') == 'failed', 'a relay without a configuration')
    bare.write('/etc/postroom/waiting.yaml', WAITING)
    bare('systemctl', 'start', 'postroom-relay@waiting.service', '--no-block')
    wait_until(lambda: 'OUTBOX_STORE_TROUBLE' in bare.journal('postroom-relay@waiting'), 'a relay without its database')
    old['postroom-relay@waiting'] = bare.show('postroom-relay@waiting', 'MainPID')
    done, sent = threading.Event(), [0, 1]

    def produce():
        while not done.is_set():
            bare.enqueue(len(sent))
            sent.append(len(sent))
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        wait_until(lambda: len(bare.delivered()) > 5, 'the old relay to deliver')
        bare.apt('install', '-o', 'Dpkg::Options::=--force-confold', '/packages/next.deb')
        assert bare.package('postroom') == 'ii  0.2.0'
        for service, pid in old.items():
            state = 'activating' if service == 'postroom-relay@waiting' else 'active'
            wait_until(lambda service=service, pid=pid: bare.show(service, 'MainPID') not in (pid, '0'), f'the new {service}')
            wait_until(lambda service=service, state=state: bare.show(service, 'ActiveState') == state, f'{service} to be {state}')
            assert bare.show(service, 'Result') == 'success', service
        assert bare('postroom', '--version').split()[-1] == '0.2.0'
        count = len(bare.delivered())
        wait_until(lambda: len(bare.delivered()) > count + 5, 'the new relay to deliver')
    finally:
        done.set()
        producer.join()
    wait_until(lambda: len(bare.delivered()) >= len(sent), 'all messages to be delivered')
    assert sorted(bare.delivered()) == sent
    assert json.loads(bare('postroom', '-d', '/var/lib/postroom/shop.db', 'stats', '--json'))['dead'] == 0
    assert bare.show('postroom-relay@spare', 'ActiveState') == 'failed'  # a restart is for running services only


def W1_changed_configuration_survives_an_upgrade_and_a_removal(bare):
    assert bare.path('/etc/postroom/postroom.yaml').read_text() == CONFIGURATION.format(name='postroom')
    bare.apt('remove', 'postroom')
    assert [bare.show(service, 'MainPID') for service in SERVICES] == ['0'] * 3
    assert bare.package('postroom').startswith('rc')
    assert not bare.path('/usr/bin/postroom').exists()
    assert bare.path('/etc/postroom/postroom.yaml').read_text() == CONFIGURATION.format(name='postroom')


def W1_purge_leaves_nothing_but_data(bare):
    """And what the operator wrote beside the files of the package."""
    for name in ('/etc/postroom/shop.yaml', '/etc/postroom/waiting.yaml', '/etc/default/postroom-consume-mail'):
        bare.path(name).unlink()
    for name in ('/etc/postroom/secrets', '/etc/systemd/system/postroom-relay.service.d', '/etc/systemd/system/postroom-relay@.service.d'):
        shutil.rmtree(bare.path(name))
    for path in bare.path('/var/lib/private/postroom-consume').iterdir():
        path.unlink()
    bare.apt('purge', *PACKAGES)
    assert {bare.package(package)[:2] for package in PACKAGES} <= {'un', 'dp'}
    assert not bare.path('/etc/postroom').exists()
    left = [path for folder in ('usr', 'lib', 'etc', 'var/lib/dpkg/info', 'var/lib/systemd')
            for path in bare.path(folder).rglob('*postroom*')]
    assert left == []
    assert {path.name for path in bare.path('/var/lib').rglob('postroom*')} == {'postroom', 'postroom.db'}
    assert sorted(bare.delivered())[:2] == [0, 1]


@pytest.mark.skipif(not SOAK, reason='two whole builds: make soak')
def W1_packages_are_the_same_in_another_directory(tmp_path):
    built = []
    for name, zone in (('a', 'UTC'), ('another-directory', 'Asia/Tokyo')):
        tree = tmp_path / name / 'postroom'
        run('git', '-c', f'safe.directory={ROOT}', 'clone', '-q', '--no-hardlinks', ROOT, tree)
        run(tree / 'tools' / 'deb', env={**os.environ, 'TZ': zone, 'CCACHE_DISABLE': '1'})
        built.append({path.name: path.read_bytes() for path in (tree / 'build' / 'deb').glob('*.deb')})
    first, second = built
    assert len(first) >= len(PACKAGES) and sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []
