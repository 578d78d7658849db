# SPDX-License-Identifier: Apache-2.0
"""Who may read the files that postroom creates."""
import os
import sqlite3
import stat

import pytest


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize('umask, expected', [(0, 0o600), (0o022, 0o600), (0o277, 0o400)])
def G1_new_sqlite_database_is_for_its_owner_alone(postroom, tmp_path, umask, expected):
    # Whether a file that its owner may not write can be used is not the question here.
    postroom('migrate', umask=umask)
    assert mode(postroom.db) == expected
    assert not [name for name in os.listdir(tmp_path) if '.new-' in name]


def G1_files_beside_a_new_database_are_for_its_owner_alone(postroom):
    postroom.enqueue('a', '1', umask=0)
    with sqlite3.connect(postroom.db) as reader:
        reader.execute('SELECT count(*) FROM postroom_outbox').fetchone()
        postroom.enqueue('a', '2', umask=0)
        assert mode(postroom.db + '-wal') == 0o600 and mode(postroom.db + '-shm') == 0o600


def G1_database_that_exists_keeps_its_permissions(postroom):
    os.close(os.open(postroom.db, os.O_CREAT | os.O_WRONLY, 0o600))
    os.chmod(postroom.db, 0o664)
    postroom.enqueue('a', '1', umask=0)
    assert mode(postroom.db) == 0o664


@pytest.mark.parametrize('umask, expected', [(0, 0o640), (0o077, 0o600)])
def K2_new_output_file_is_not_readable_by_others(postroom, tmp_path, umask, expected):
    postroom.enqueue('a', '1')
    postroom.ok('relay', '--drain', '--to', 'file:out', umask=umask)
    assert mode(tmp_path / 'out') == expected
