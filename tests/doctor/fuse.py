# SPDX-License-Identifier: Apache-2.0
"""An empty FUSE file system: enough for statfs(2) to answer as on a real one."""
import contextlib
import ctypes
import errno
import os
import stat
import struct
import threading

import pytest

LOOKUP, FORGET, GETATTR, STATFS, INIT, BATCH_FORGET = 1, 2, 3, 17, 26, 42
DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def answer(opcode):
    """The body of the reply, or an error number."""
    if opcode == INIT:
        return struct.pack('=IIIIHHIIHHI28x', 7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, 0)
    if opcode == GETATTR:
        attributes = struct.pack('=QQQQQQIIIIIIIIII', 1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o755, 2, os.getuid(), os.getgid(), 0, 4096, 0)
        return struct.pack('=QII', 1, 0, 0) + attributes
    if opcode == STATFS:
        return struct.pack('=QQQQQIIII24x', 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096, 0)
    return errno.ENOENT if opcode == LOOKUP else errno.ENOSYS


def serve(device):
    """Until the file system is unmounted."""
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return
        _, opcode, unique = struct.unpack_from('=IIQ', request)
        if opcode in (FORGET, BATCH_FORGET):
            continue
        reply = answer(opcode)
        body, error = (reply, 0) if isinstance(reply, bytes) else (b'', -reply)
        os.write(device, struct.pack('=IiQ', 16 + len(body), error, unique) + body)


@contextlib.contextmanager
def fuse(path):
    """Mounts it at a new directory. Only other processes may touch the directory: this one answers them."""
    path.mkdir()
    try:
        device = os.open('/dev/fuse', os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f'/dev/fuse cannot be opened: {error.strerror}')
    options = f'fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other'
    if libc.mount(b'none', os.fsencode(path), b'fuse', ctypes.c_ulong(0), options.encode()) != 0:
        os.close(device)
        pytest.skip(f'FUSE cannot be mounted here: {os.strerror(ctypes.get_errno())}')
    server = threading.Thread(target=serve, args=(device,), daemon=True)
    server.start()
    try:
        yield path
    finally:
        libc.umount2(os.fsencode(path), DETACH)
        server.join(30)
        os.close(device)
