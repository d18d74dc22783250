"""fsync and fdatasync, as calls that no signal handler can come into: Python runs one behind any call that it made, and
what that raises would stand in place of the answer, which the kernel gives only once (S2).

So from the kernel's answer to the FailedSync that is raised no line of Python runs. Ctrl-C finds the FailedSync on its
way, and has it as its __context__: failed_sync_in() finds it there.
"""

from libc.stdint cimport uintptr_t

from klog._c.osio cimport kl_fdatasync, kl_fsync, kl_io_libc, kl_io_t

import os

from klog.disk.faults import AFTER_SYNC, FailedSync

cdef object strerror = os.strerror


def sync_file(int fd, str path, bint data=False, uintptr_t table=0):
    """What was written to this descriptor is on disk when it returns; data: its bytes and length alone. FailedSync is
    final. table: address of the kl_io_t for the call, 0 for the kernel's own."""
    cdef const kl_io_t *io = <const kl_io_t *>table if table else &kl_io_libc
    cdef int status
    with nogil:
        status = kl_fdatasync(io, fd) if data else kl_fsync(io, fd)
    if status < 0:
        raise failed_sync(-status, path)


def failed_sync(int number, str path):
    """The FailedSync of an errno: os_error(number, path, sync=True), without a line of Python's."""
    return FailedSync(number, f"{strerror(number)}; {AFTER_SYNC}", path)
