# cython: auto_pickle=False
"""Whether a file and its directory have changed since the last check, by two stat(2) calls and no Python object.

A file system takes the time of a change from a clock that advances once in some milliseconds. So a file whose stamp is
the current tick may change again and keep that stamp. Such a file counts as changed until it is checked at a later
tick.
"""

cimport cython
from libc.stdint cimport int64_t

from klog.disk._path cimport encode_path


@cython.final
cdef class Watched:
    """The last stat(2) of a file and its directory. Any thread, under the GIL.

    until_ns: by the monotonic clock; from then on nothing counts as unchanged. same_directory: True if the
    last stat() found the directory as the one before it, which was accepted.
    """

    def stat(self, file, directory, int64_t valid_ms):
        """Call stat(2) on them before their content is read. The result counts from accept() on, after that is read.

        valid_ms: for how many milliseconds an equal result means that nothing has changed.
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
        """Watch this file instead of the last stat()'s. `size` bytes of it have been read since: it counts as changed
        if it has another size."""
        cdef int64_t tick = kl_tick_ns()
        self.file = encode_path(file)
        self.seen = self.seen and kl_stat(self.file, &self.of_file) and (
            self.of_file.size == size and self.of_file.stamp_ns < tick)

    def accept(self):
        """Call it when the content has been read: the last stat() counts from here on."""
        self.certain = self.seen

    def forget(self):
        """Count the file and the directory as changed until the next accept()."""
        self.certain = False

    def extend(self, int64_t valid_ms):
        """Check both again. If they are unchanged, that counts for valid_ms from now on. Returns whether they are."""
        self.until_ns = kl_elapsed_ns() + valid_ms * 1_000_000
        return self.unchanged()

    cdef bint unchanged(self) noexcept:
        """Return whether nothing has changed since the accepted stat(), whose time has not run out."""
        cdef kl_stat_t now
        if not self.certain or kl_elapsed_ns() >= self.until_ns:
            return False
        return (kl_stat(self.file, &now) and kl_same(&now, &self.of_file)
                and kl_stat(self.directory, &now) and kl_same(&now, &self.of_directory))
