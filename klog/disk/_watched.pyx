# cython: auto_pickle=False
"""Whether a file and its directory have changed since the last check, by two stat(2) calls and no Python object.

A file system stamps changes with a clock that stands still for milliseconds. So a stamp of the current tick proves
nothing: a later change may get the same one. Such a check counts as changed until the clock has moved on.
"""

cimport cython
from libc.stdint cimport int64_t

from klog.disk._path cimport encode_path


@cython.final
cdef class Watched:
    """The last stat(2) of a file and its directory. Any thread, under the GIL.

    until_ns: by the monotonic clock; from then on nothing counts as unchanged. same_directory: did the last stat() find
    the directory as the accepted one before it?
    """

    def stat(self, file, directory, int64_t valid_ms):
        """Call stat(2) on them before their content is read. The result counts from accept() on, after that is read.

        valid_ms: for so long at most an equal result means no change.
        """
        cdef int64_t tick = kl_tick_ns()
        cdef kl_stat_t before = self.of_directory
        known, self.certain = self.certain, False
        self.seen = self.same_directory = False
        self.file, self.directory = encode_path(file), encode_path(directory)
        if kl_stat(self.file, &self.of_file) and kl_stat(self.directory, &self.of_directory):
            self.same_directory = known and kl_same(&before, &self.of_directory)
            self.until_ns = kl_elapsed_ns() + valid_ms * 1_000_000
            self.seen = self.of_file.stamp_ns < tick and self.of_directory.stamp_ns < tick

    def use(self, file, int64_t size):
        """Watch this file instead, of which `size` bytes have been read since the last stat(). It counts as changed if
        it has another size."""
        cdef int64_t tick = kl_tick_ns()
        self.file = encode_path(file)
        self.seen = self.seen and kl_stat(self.file, &self.of_file) and (
            self.of_file.size == size and self.of_file.stamp_ns < tick)

    def accept(self):
        """The content has been read: the last stat() counts from here on."""
        self.certain = self.seen

    def forget(self):
        """What was seen no longer counts."""
        self.certain = False

    def extend(self, int64_t valid_ms):
        """If both are still as they were seen, let that count for valid_ms from now on. Returns whether they are."""
        self.until_ns = kl_elapsed_ns() + valid_ms * 1_000_000
        return self.unchanged()

    cdef bint unchanged(self) noexcept:
        """Is nothing changed since the last stat(), and is that not long ago?"""
        cdef kl_stat_t now
        if not self.certain or kl_elapsed_ns() >= self.until_ns:
            return False
        return (kl_stat(self.file, &now) and kl_same(&now, &self.of_file)
                and kl_stat(self.directory, &now) and kl_same(&now, &self.of_directory))
