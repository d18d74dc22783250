# cython: auto_pickle=False
"""The segments of a log, and the counters by which readers notice changes other than appends.

Readers take no lock: they use an immutable tuple of segments. A counter that a reader has read never
decreases.
"""

cimport cython

from klog.values import NamedTuple

from klog.log.state.segments import Sizes
from klog.segment import Segment


class Moment(NamedTuple):
    """The state of a log when a read began: see SegmentList."""

    generation: int
    taken_back: int
    segments: tuple[Segment, ...]


@cython.final
cdef class SegmentList:
    """The sole writer of these fields. Changed under the log's lock; any thread may read.

    generation: counts changes other than appends and rolls. rewritten: counts changes of bytes below the log end, also
    possible ones. taken_back: counts removals of bytes beyond the log end, mostly of failed appends, where a reader may
    have looked. tail: what the fast path of appends knows of the last segment, or None. It holds that segment's file
    open, so it goes with the tuple: a segment that retention deletes must not keep its blocks until the next append.
    """

    def __cinit__(self):
        self.segments = ()

    cdef void keep_tail(self, tail) noexcept:
        """Keep what the fast path of appends knows, or None."""
        self.tail = tail

    cdef int put(self, tuple segments) except -1:
        self.segments, self.tail = segments, None
        return 0

    @property
    def moment(self):
        """The current Moment."""
        return Moment(self.generation, self.taken_back, self.segments)

    @property
    def sizes(self):
        """The prefix sums of the segments' sizes, computed at the first call."""
        return self.sizes_of(self.segments)

    def sizes_of(self, tuple segments not None):
        """The prefix sums of a tuple of segments, kept until the next call with another one."""
        known = self.known_sizes
        if known is None or known.segments is not segments:
            known = self.known_sizes = Sizes(segments)
        return known

    def load(self, segments):
        """Use the segments of a load."""
        self.put(tuple(segments))

    def add(self, segment):
        """A roll: the segment is the active one from here on."""
        self.put((*self.segments, segment))

    def restore(self, tuple before not None):
        """A roll is undone: these were the segments before it."""
        self.put(before)

    def renew_active(self, segment):
        """Another segment of the same base offset replaces the empty active one."""
        self.put((*self.segments[:len(self.segments) - 1], segment))

    def drop_oldest(self, Py_ssize_t count):
        """Retention removes the first `count` segments. Readers that are inside them continue."""
        self.put(self.segments[count:])

    def rewrite(self, segments):
        """A cleaning replaces the segments by these: readers search again."""
        self.put(tuple(segments))
        self.generation += 1

    def cut(self, segments):
        """A truncation leaves these segments. Counted before the first byte is removed: readers of the removed bytes
        search again."""
        self.put(tuple(segments))
        self.generation += 1
        self.rewritten += 1

    def empty(self):
        """The log is deleted. Returns the segments that it had."""
        segments = self.segments
        self.put(())
        return segments

    def took_back(self):
        """Bytes beyond the log end have been removed."""
        self.taken_back += 1

    def follow(self, segments, bint oldest_gone):
        """A reader follows rolls and deletions of the writer in another process."""
        if oldest_gone:
            self.generation += 1
        self.put(tuple(segments))

    def reload(self, segments):
        """A reader has loaded again. Counted before and after: a read that began in between may have seen a part."""
        self.generation += 1
        self.rewritten += 1
        self.put(tuple(segments))
        self.rewritten += 1

    def exchange(self, SegmentList other not None):
        """Exchange the segments of two lists, but not the counters, which belong to the readers of each."""
        self.segments, other.segments = other.segments, self.segments
        self.tail = other.tail = None
