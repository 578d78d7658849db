# SPDX-License-Identifier: Apache-2.0
"""A time of day that jumps when a test says so."""
import glob
import os
import pathlib

import pytest

from conftest import sanitized


def clock(postroom):
    """An environment whose time of day is set by a file, and what sets it."""
    found = glob.glob('/usr/lib/*/faketime/libfaketimeMT.so.1')
    if not found:
        pytest.skip('there is no libfaketime')
    if sanitized():
        pytest.skip('a sanitizer wants to be the first library of a program')
    path = pathlib.Path(postroom.cwd, 'clock')

    def put(offset):
        # In one step: the relay may read it at any time.
        new = path.with_suffix('.new')
        new.write_text(f'{offset}\n')
        os.rename(new, path)

    put('+0')
    return {'LD_PRELOAD': found[0], 'FAKETIME_TIMESTAMP_FILE': str(path), 'FAKETIME_NO_CACHE': '1',
            'FAKETIME_DONT_FAKE_MONOTONIC': '1', 'DONT_FAKE_MONOTONIC': '1'}, put
