"""Finding the first segment that reaches a time, without asking each segment at each lookup."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from klog.segment import Segment

NONE = -1


class NewestBefore:
    """Finds the first segment of a log that reaches a time, by a binary search. Any thread.

    Remembers, for one tuple of segments, the newest timestamp of each closed segment and those before it, as far as
    lookups have needed them.
    """

    _known: tuple[Sequence[Segment], int, Sequence[int]] = ((), 0, ())

    def reaching(self, segments: Sequence[Segment], first: int, ms: int) -> int:
        """Number of the first closed segment from `first` on with a timestamp of at least ms, else that of the newest.

        If the log start has moved since, it may be too low.
        """
        of, origin, newest = self._known
        if of is not segments or first < origin:
            origin, newest = first, []
        if not newest or newest[-1] < ms:
            newest = list(newest)  # other threads may be reading the old list
            for segment in segments[origin + len(newest) : -1]:
                newest.append(max(segment.max_timestamp if segment.size else NONE, newest[-1] if newest else NONE))
                if newest[-1] >= ms:
                    break
            self._known = segments, origin, newest
        return max(first, origin + bisect.bisect_left(newest, ms))
