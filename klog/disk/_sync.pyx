"""fsync and fdatasync that no signal handler can interrupt. After a call made by Python code, Python runs pending
signal handlers. An exception from one would replace the kernel's result, which the kernel reports only once (S2).

So no Python code runs between the kernel's result and the FailedSync that is raised. A later Ctrl-C has the FailedSync
as its __context__; failed_sync_in() finds it there.
"""

from libc.stdint cimport uintptr_t

from klog._c.osio cimport kl_fdatasync, kl_fsync, kl_io_libc, kl_io_t

import os

from klog.disk.faults import AFTER_SYNC, FailedSync

cdef object strerror = os.strerror


def sync_file(int fd, str path, bint data=False, uintptr_t table=0):
    """Wait until what was written to this descriptor is on disk; data: only its bytes and length. Raises FailedSync,
    which is final. table: address of the kl_io_t for the call, 0 for the kernel's own."""
    cdef const kl_io_t *io = <const kl_io_t *>table if table else &kl_io_libc
    cdef int status
    with nogil:
        status = kl_fdatasync(io, fd) if data else kl_fsync(io, fd)
    if status < 0:
        raise failed_sync(-status, path)


def failed_sync(int number, str path):
    """Return the FailedSync of an errno: os_error(number, path, sync=True), without running Python code."""
    return FailedSync(number, f"{strerror(number)}; {AFTER_SYNC}", path)
