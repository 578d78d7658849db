# SPDX-License-Identifier: Apache-2.0
"""squawk-cli, a linter for migrations: $SQUAWK, an installed one, or that of npm, which is installed once beside the program."""
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import PROGRAM

PACKAGE = 'squawk-cli@2.66.0'


def find_linter():
    found = os.environ.get('SQUAWK') or shutil.which('squawk')
    if found:
        return found
    home = pathlib.Path(PROGRAM).resolve().parent / 'npm-squawk'
    program = home / 'node_modules' / '.bin' / 'squawk'
    if program.exists():
        return str(program)
    if not shutil.which('npm'):
        pytest.skip('npm is missing; run tools/install npm')
    run = subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=1', '--prefix', str(home), PACKAGE],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if run.returncode != 0 or not program.exists():
        pytest.skip(f'npm cannot install {PACKAGE}: {run.stderr[:200]}')
    return str(program)
