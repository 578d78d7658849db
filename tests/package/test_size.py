# SPDX-License-Identifier: Apache-2.0
"""The size of the program."""
import subprocess

import pytest

from conftest import PROGRAM, sanitized


@pytest.mark.skipif(sanitized(), reason='a sanitizer makes the program larger')
def W1_stripped_program_is_smaller_than_2_MB(tmp_path):
    stripped = tmp_path / 'postroom'
    subprocess.run(['strip', '-o', stripped, PROGRAM], check=True)
    assert 0 < stripped.stat().st_size < 2_000_000
