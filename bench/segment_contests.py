"""Fetches of one batch of 4 KiB at random offsets, over many segments; the peer has the same batches in ten segments.

Both logs have the same 40,000 batches, 160 MB in the page cache, so that only the number of files differs. Each
measurement has new random offsets. With 20,000 segments and the usual limits of a process not all files can stay open,
so some fetches open a file (docs/performance.md, the cost of an open log).
"""

from __future__ import annotations

import random
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.many_segments import write_segments

_FEW = 10
_VALUE = bytes(4025)  # of a batch of 4 KiB


class _Segments:
    """A log of `segments` segments, and the offsets of the next measurement."""

    def __init__(self, folder: Path, segments: int, batches: int, count: int) -> None:
        directory = folder / f"{segments}" / "segments-0"
        write_segments(directory, segments, batches=batches // segments, value=_VALUE)
        self.log = klog.Log.open(directory, config={"retention.ms": -1}, clean_shutdown=True)
        self.offsets: list[int] = []
        self._chance, self._batches, self._count = random.Random(7), batches, count
        self.span = batches // segments

    def draw(self) -> None:
        self.offsets = [self._chance.randrange(self._batches) for _ in range(self._count)]

    def fetch(self) -> None:
        call = self.log.fetch
        for offset in self.offsets:
            call(offset, 1)

    def check(self) -> None:
        self.draw()
        for offset in self.offsets:
            found = self.log.fetch(offset, 1)
            assert (found.size, found.position.segment_base_offset) == (4096, offset // self.span * self.span)
            assert int.from_bytes(found.memory()[:8]) == offset


def _segments(many: int, goal: float, tiny: bool, folder: Path) -> Contest:
    batches, count = (400, 50) if tiny else (40_000, 40_000)
    segments = min(many, batches)
    logs = [_Segments(folder, number, batches, count) for number in (segments, _FEW)]

    def check() -> None:
        for each in logs:
            each.check()

    def close() -> None:
        for each in logs:
            each.log.close()

    return Contest(
        f"segments {many:,}",
        count,
        0,
        (
            Contestant(f"Log.fetch over {many:,}", logs[0].fetch, before=logs[0].draw, goal=goal),
            Contestant(f"Log.fetch over {_FEW}", logs[1].fetch, before=logs[1].draw),
        ),
        check,
        close,
    )


FACTORIES: dict[str, Factory] = {
    f"segments {many:,}": lambda tiny, folder, many=many, goal=goal: _segments(many, goal, tiny, folder)
    for many, goal in ((1000, 0.77), (20_000, 0.33))
}
