# SPDX-License-Identifier: Apache-2.0
"""A small file system for the tests of a full disk.

Root mounts it as is. Other users mount it in a user namespace, where they have the right to.
This process enters the namespace; programs that it starts see the file system, but have no
rights beyond those of the user.
"""
import contextlib
import ctypes
import os
import pathlib

import pytest

NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
BIND = 4096
DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def check(status):
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(path, options):
    check(libc.mount(b'none', os.fsencode(path), b'tmpfs', ctypes.c_ulong(0), options.encode()))


def enter_namespace():
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(NEW_USER | NEW_MOUNTS))
    own = pathlib.Path('/proc/self')
    (own / 'setgroups').write_text('deny')
    (own / 'uid_map').write_text(f'{user} {user} 1')
    (own / 'gid_map').write_text(f'{group} {group} 1')


def bind_mount(source, target):
    """Like `mount --bind`; also in a user namespace."""
    arguments = os.fsencode(source), os.fsencode(target), b'', ctypes.c_ulong(BIND), None
    try:
        check(libc.mount(*arguments))
    except PermissionError:
        enter_namespace()
        check(libc.mount(*arguments))


@contextlib.contextmanager
def small_disk(path, size, owner=None):
    """Mounts an empty file system at a new directory. owner is an os.stat_result."""
    path.mkdir()
    owner = owner or os.stat(path)
    options = f'size={size},mode=0700,uid={owner.st_uid},gid={owner.st_gid}'
    try:
        try:
            mount(path, options)
        except PermissionError:
            enter_namespace()
            mount(path, options)
    except OSError as error:
        pytest.skip(f'a small file system cannot be mounted here: {error.strerror}')
    yield path
    check(libc.umount2(os.fsencode(path), DETACH))
