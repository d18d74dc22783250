# cython: auto_pickle=False
"""Which calls a log takes: is it open, online, of this process, and not deleted?

The flags change under the log's lock, with one exception: fail(), by which another log of the same disk may take this
one offline. Any thread may read them.
"""

cimport cython
from libc.stdint cimport int64_t

from klog.disk import is_final
from klog.errors import ForkedHandle, LogClosed, ReadOnly, StorageOffline, UnknownTopicOrPartition

cdef enum:
    READS_FAILED_MAX = 3


@cython.final
cdef class Health:
    """The sole writer of these fields.

    closed: also while it is being opened. handlers_closed: closed without a flush, by close_handlers(). forked: this is
    the copy of a writer in a forked child. deleted: marked for deletion, or deleted. offline: why it refuses appends,
    None while it takes them. undoing: it may be online again soon, see begin_undo(). unreadable: why it cannot even be
    read, since its directory has failed. pid: the process that opened it. reads_failed: consecutive failures.
    """

    def __init__(self, str name not None, bint read_only, int64_t pid):
        self.name, self.read_only, self.pid = name, read_only, pid
        self.closed = True

    cdef bint takes_appends(self) noexcept:
        return not (self.closed or self.forked or self.offline is not None or self.deleted or self.read_only)

    cdef bint takes_reads(self) noexcept:
        return not (self.closed or self.forked or self.unreadable is not None)

    def check_open(self):
        """Raise LogClosed, StorageOffline or ForkedHandle unless the log can be read."""
        if self.closed:
            raise LogClosed(f"{self.name} is closed: open it again")
        if self.unreadable is not None:
            raise StorageOffline(f"{self.name} is offline: {self.unreadable}")
        if self.forked:
            raise ForkedHandle(f"{self.name} belongs to process {self.pid}: open it again in this one")

    def check_writable(self, path):
        """Also ReadOnly and UnknownTopicOrPartition, unless it can be changed. path: of its directory."""
        if self.takes_appends():
            return
        self.check_open()
        if self.read_only:
            raise ReadOnly(f"{self.name} was opened with read_only=True: open it for writing to append")
        self.check_online()
        raise UnknownTopicOrPartition(f"{self.name} has been deleted; its files will be removed from {path}")

    def check_online(self):
        """Raise StorageOffline if the log is offline."""
        if self.offline is not None:
            raise StorageOffline(f"{self.name} is offline since {self.offline}: close it and open it again")

    # Opening and closing

    def opened(self):
        """The log is loaded and ready."""
        self.closed = False

    def close(self, *, bint handlers=False):
        """It takes no calls from here on. handlers: its files are closed without a flush."""
        self.closed, self.handlers_closed = True, handlers

    def delete(self):
        """It is marked for deletion."""
        self.deleted = True

    def in_child(self):
        """In a forked child: a reader goes on, a writer does not."""
        self.forked = not self.read_only

    # Failures

    def fail(self, reason, *, bint readable=True):
        """Take the log offline, and unless it is readable refuse reads, too. Needs no lock; the first reason stays."""
        if self.offline is None or self.undoing:
            self.offline, self.undoing = reason, False
        if not readable:
            self.unreadable = reason

    def go_offline(self, reason):
        """Take the log offline. The last reason stays: the first may be that of an undo that had only begun."""
        self.offline, self.undoing = reason, False

    def begin_undo(self, reason):
        """Take the log offline in advance, in case that an undo is interrupted. Other threads wait for the lock."""
        self.offline, self.undoing = f"{reason}, not undone yet", True

    def undone(self):
        """The log is online again, unless something else has taken it offline since begin_undo()."""
        if self.undoing:
            self.offline, self.undoing = None, False

    cpdef void read_worked(self) noexcept:
        """A read has returned data."""
        self.reads_failed = 0

    def read_failed(self, error):
        """Count a failed read. Returns why the log is to go offline: several failures in a row mean that the disk has
        failed (P6). Else None."""
        self.reads_failed += is_final(error)
        if self.reads_failed >= READS_FAILED_MAX and not self.read_only and self.offline is None:
            return f"{self.reads_failed} reads in a row failed: {error}"
        return None
