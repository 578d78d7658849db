# SPDX-License-Identifier: Apache-2.0
"""What the tests of the doctor share."""
import shutil
import subprocess

import pytest

from conftest import sanitized

LEVELS = {'ok', 'note', 'warning', 'problem', 'skipped'}
FIELDS = ['check', 'level', 'title', 'detail', 'advice', 'command']


def examine(postroom, *args, **options):
    """All findings of `postroom doctor`; the exit status fits them."""
    result = postroom('doctor', '--json', *args, **options)
    found = result.objects
    assert found and all(list(one) == FIELDS and one['level'] in LEVELS for one in found), result
    assert result.code == (1 if any(one['level'] == 'problem' for one in found) else 0), result
    for one in found:
        assert one['title'] and (one['level'] in ('ok', 'skipped') or one['detail'] and one['advice']), one
    return found


def findings(postroom, *args, **options):
    """Those that are not ok."""
    return [one for one in examine(postroom, *args, **options) if one['level'] != 'ok']


def only(postroom, check, level, *args, **options):
    """The one finding that there is, which is of this check and level."""
    found = findings(postroom, *args, **options)
    assert [(one['check'], one['level']) for one in found] == [(check, level)], found
    return found[0]


def is_quiet(postroom, *args, **options):
    """Nothing is wrong, and doctor says so in one line."""
    assert findings(postroom, *args, **options) == []
    result = postroom('doctor', *args, **options)
    assert result.code == 0 and result.err == '', result
    assert len(result.lines) == 1 and result.out.startswith('Everything is fine: '), result


def statements(command):
    """SQL commands end with a semicolon; each is on lines of its own."""
    assert command.endswith(';'), command
    return [part for part in (part.strip() for part in command.split(';\n')) if part]


def shim(directory, source):
    """A library that replaces a function of the C library in the program: the path for LD_PRELOAD."""
    if sanitized() or not shutil.which('cc'):
        pytest.skip('needs cc, and a program without sanitizers')
    (directory / 'shim.c').write_text('#define _GNU_SOURCE\n#include <dlfcn.h>\n' + source)
    subprocess.run(['cc', '-shared', '-fPIC', '-o', directory / 'shim.so', directory / 'shim.c', '-ldl'], check=True)
    return str(directory / 'shim.so')
