# SPDX-License-Identifier: Apache-2.0
"""The source tarball of make dist."""
import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest

from conftest import ROOT

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
pytestmark = pytest.mark.skipif(not (ROOT / '.git').exists(), reason='not a git checkout')


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding='utf-8', **options)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def git(*words, **options):
    return run('git', '-c', f'safe.directory={ROOT}', *words, cwd=ROOT, **options).strip()


@pytest.fixture
def tarball(tmp_path):
    run(ROOT / 'tools' / 'dist', tmp_path / 'dist')
    return next((tmp_path / 'dist').glob('postroom-*.tar.gz'))


def W1_source_tarball_is_the_same_in_another_clone(tarball, tmp_path):
    clone = tmp_path / 'elsewhere'
    git('clone', '-q', '--no-hardlinks', ROOT, clone)
    run('git', 'config', 'tar.umask', '0077', cwd=clone)
    for path in (clone / 'src').iterdir():
        os.utime(path, (1, 1))
    run(clone / 'tools' / 'dist', cwd='/', preexec_fn=lambda: os.umask(0o077),
        env={**os.environ, 'TZ': 'Asia/Tokyo', 'LC_ALL': 'C'})
    again = clone / 'build' / 'dist' / tarball.name
    assert again.read_bytes() == tarball.read_bytes()
    run('sha256sum', '--check', '--strict', f'{tarball.name}.sha256', cwd=tarball.parent)


def W1_source_tarball_has_fixed_order_time_and_owner(tarball):
    time = int(git('show', '--no-patch', '--format=%ct', 'HEAD'))
    with tarfile.open(tarball) as archive:
        members = archive.getmembers()
    assert {member.mtime for member in members} == {time}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, 'root', 'root')}
    assert not any(member.mode & 0o022 for member in members if not member.issym())
    prefix = tarball.name.removesuffix('.tar.gz')
    files = [member.name.removeprefix(f'{prefix}/') for member in members if not member.isdir()]
    assert sorted(files) == sorted(git('ls-tree', '-r', '--name-only', 'HEAD').splitlines())


@pytest.fixture
def tree(tarball, tmp_path):
    run('tar', 'xf', tarball, '-C', tmp_path)
    return tmp_path / tarball.name.removesuffix('.tar.gz')


def W1_program_of_the_tarball_names_its_commit(tree, tmp_path):
    source = tmp_path / 'main.c'
    source.write_text('#include "base/revision.h"\n#include <stdio.h>\n'
                      'int main(void) { printf("%s %s", pr_revision(), pr_revision_date()); }\n')
    run('cc', '-o', tmp_path / 'main', '-I', tree / 'src', source, tree / 'src' / 'base' / 'revision.c')
    assert run(tmp_path / 'main') == git('show', '--no-patch', '--format=%H %cI', 'HEAD')


def build(tree, parent, *targets, **variables):
    """Builds the unpacked tarball elsewhere, without what ccache has of the first time; returns the tree of the build."""
    parent.mkdir()
    shutil.copytree(tree, parent / tree.name, symlinks=True)
    env = {**os.environ, 'CCACHE_DISABLE': '1', **variables}
    run('meson', 'setup', 'build', '-Dtests=false', '-Dprefix=/usr', *([] if SOAK else ['-Doptimization=0']), cwd=parent / tree.name, env=env)
    run('ninja', '-C', 'build', *targets, cwd=parent / tree.name, env=env, preexec_fn=lambda: os.umask(0o027))
    return parent / tree.name / 'build'


def contents(folder):
    """Of every file below, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def W1_library_is_the_same_in_another_path(tree, tmp_path):
    """Of the whole tarball, a part that is soon built; the long form builds all of it."""
    target = 'src/libpostroom-sqlite.so.' + tree.name.removeprefix('postroom-')
    targets = [target, 'postroom.cdx.json', 'docs/postroom.1']
    first = build(tree, tmp_path / 'a', *targets, TZ='UTC', LC_ALL='C')
    second = build(tree, tmp_path / 'another-directory', *targets, TZ='Asia/Tokyo', LC_ALL='C.UTF-8', USER='other', HOME='/')
    for name in targets:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert b'.debug_info' in (first / target).read_bytes() and os.fsencode(tmp_path) not in (first / target).read_bytes()


@pytest.mark.skipif(not SOAK, reason='two whole builds: make soak')
def W1_builds_in_two_paths_install_the_same_bytes(tree, tmp_path):
    installed = []
    for name, zone in (('a', 'UTC'), ('another-directory', 'Asia/Tokyo')):
        folder = build(tree, tmp_path / name, TZ=zone)
        run('meson', 'install', '-C', folder, '--no-rebuild', env={**os.environ, 'DESTDIR': str(tmp_path / name / 'installed')})
        installed.append(contents(tmp_path / name / 'installed'))
    first, second = installed
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []
    assert {'usr/bin/postroom', 'usr/share/man/man1/postroom.1', 'usr/share/doc/postroom/postroom.cdx.json'} <= set(first)


@pytest.mark.skipif(not SOAK or os.geteuid() != 0, reason='builds packages and the static program: make soak as root')
def W1_release_has_every_file_with_its_checksum(tarball, tmp_path):
    run(ROOT / 'tools' / 'release', tmp_path / 'release')
    release = tmp_path / 'release'
    version = tarball.name.removeprefix('postroom-').removesuffix('.tar.gz')
    names = {path.name for path in release.iterdir()}
    static = f'postroom-{version}-{os.uname().machine}-static'
    assert {tarball.name, static, f'{static}.cdx.json', 'SHA256SUMS', f'postroom-doc_{version}_all.deb'} <= names
    assert {name.split('_')[0] for name in names if name.endswith('.deb')} >= {'postroom', 'libpostroom0', 'libpostroom-dev', 'postroom-doc'}
    listed = [line.split()[1] for line in (release / 'SHA256SUMS').read_text().splitlines()]
    assert sorted(listed) == sorted(names - {'SHA256SUMS'})
    run('sha256sum', '--check', '--strict', 'SHA256SUMS', cwd=release)
    assert (release / tarball.name).read_bytes() == tarball.read_bytes()
    reported = json.loads(run(release / static, '--version', '--json'))
    assert (reported['version'], reported['revision']) == (version, git('rev-parse', 'HEAD'))
    properties = json.loads((release / f'{static}.cdx.json').read_text())['metadata']['component']['properties']
    assert properties == [{'name': 'postroom:revision', 'value': git('rev-parse', 'HEAD')}]


def W1_version_has_one_source():
    """meson.build has the version. Two files that cannot read it have the same, and no other file has it."""
    version = re.search(r"^  version: '(.*)',$", (ROOT / 'meson.build').read_text(), re.MULTILINE)[1]
    found = git('grep', '-lIF', version, '--', ':!docs', ':!tests', ':!CHANGELOG.md', ':!README.md').splitlines()
    assert sorted(found) == ['contrib/kubernetes/base/kustomization.yaml', 'contrib/kubernetes/migrate/kustomization.yaml', 'meson.build']
    assert re.findall(r'^## (.*?)(?: \(.*\))?$', (ROOT / 'CHANGELOG.md').read_text(), re.MULTILINE)[:2] == ['Unreleased', version]


@pytest.mark.skipif(not SOAK, reason='a whole build: make soak')
def W1_unpacked_tarball_builds_and_installs(tree, tmp_path):
    run('make', f'PREFIX={tmp_path}/usr', 'install', cwd=tree)
    version = json.loads(run(tmp_path / 'usr' / 'bin' / 'postroom', '--version', '--json'))
    assert f'postroom-{version["version"]}' == tree.name and version['revision'] == git('rev-parse', 'HEAD')
    assert (tmp_path / 'usr' / 'share' / 'man' / 'man1' / 'postroom.1').exists()
