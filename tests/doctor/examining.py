# SPDX-License-Identifier: Apache-2.0
"""What the tests of the doctor share."""
import shutil
import subprocess

import pytest

from conftest import sanitized, wait_until

LEVELS = {'ok', 'note', 'warning', 'problem', 'skipped'}
FIELDS = ['check', 'level', 'title', 'detail', 'advice', 'command']


# The doctor's own time limits: on a crowded machine a check may be skipped for them.
LATE = ('statement timeout', 'no answer from', 'took too long', 'The time limit')


def is_late(found):
    return any(one['level'] == 'skipped' and any(words in (one['detail'] or '') for words in LATE) for one in found)


def examine(postroom, *args, **options):
    """All findings of `postroom doctor`, of a run in which no check was late; the exit status fits them."""
    def run():
        result = postroom('doctor', '--json', *args, **options)
        return None if is_late(result.objects) else result
    result = wait_until(run, 'a run in which no check is late')
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
    def run():
        result = postroom('doctor', *args, **options)
        return None if any(words in result.out for words in LATE) else result
    result = wait_until(run, 'a run in which no check is late')
    assert result.code == 0 and result.err == '', result
    assert len(result.lines) == 1 and result.out.startswith('Everything is fine: '), result


def statements(command):
    """SQL commands end with a semicolon; each is on lines of its own."""
    assert command.endswith(';'), command
    return [part for part in (part.strip() for part in command.split(';\n')) if part]


def shim(directory, source, library=None):
    """A library that replaces a function of the C library in the program: the path for LD_PRELOAD.

    library: the directory for it, if another user must be able to read it.
    """
    if sanitized() or not shutil.which('cc'):
        pytest.skip('needs cc, and a program without sanitizers')
    (directory / 'shim.c').write_text('#define _GNU_SOURCE\n#include <dlfcn.h>\n' + source)
    path = f'{library or directory}/shim.so'
    subprocess.run(['cc', '-shared', '-fPIC', '-o', path, directory / 'shim.c', '-ldl'], check=True)
    return path
