"""One wrong bit in the base offset of a batch, which no checksum covers: each query by time returns the result of the
undamaged log, or raises CorruptBatch. The last batch of a log is left out: nothing contradicts its base offset."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.record import decode
from tests.support.batches import NOW, batch
from tests.support.damage import flip

CONFIG = {"segment.bytes": 330, "index.interval.bytes": 100, "retention.ms": -1}  # four batches to a segment
SIZES = (2, 1, 3, 1, 2, 2, 1, 1, 3, 1)  # records of each batch
LAST = sum(SIZES)
TIMES = [NOW + 10 * number for number in range(len(SIZES) + 1)]


def fill(path: Path) -> dict[str, bytes]:
    with klog.Log.open(path, config=CONFIG, clock=ManualClock(NOW)) as log:
        for size, time in zip(SIZES, TIMES, strict=False):
            log.append_batches(batch(size, at=time))
        assert len(log.segments) > 2
    return {file.name: file.read_bytes() for file in path.iterdir()}


def flips(files: dict[str, bytes]) -> Iterator[tuple[str, int, int]]:
    """(file, byte, bit) of every base offset except the last."""
    positions = [
        (name, each.position) for name, data in sorted(files.items()) if name.endswith(".log") for each in decode(data)
    ]
    for name, position in positions[:-1]:
        for byte in range(8):
            for bit in range(8):
                yield name, position + byte, bit


Query = Callable[[klog.Log], Any]
QUERIES: dict[str, Query] = {
    "the offset of a time": lambda log: [log.offset_for_timestamp(time + more) for time in TIMES for more in (0, 1)],
    "the listed offset of a time": lambda log: [log.list_offset(time) for time in TIMES],
    "the listed offset of the newest": lambda log: log.list_offset("max_timestamp"),
    "epoch ends": lambda log: log.end_offset_for(0),
    "segments": lambda log: [(each.base_offset, each.next_offset, each.max_timestamp) for each in log.segments],
}


@pytest.mark.parametrize("start", [0, 1, 8])
def test_each_answer_is_right_or_an_error(tmp_path: Path, start: int) -> None:
    files = fill(tmp_path / "t-0")
    options = {"clean_shutdown": True, "log_start_offset": start, "recovery_point": LAST}

    def answers() -> dict[str, Any]:
        """The results of the queries that do not raise."""
        found = {}
        with (
            contextlib.suppress(CorruptLog),
            klog.Log.open(tmp_path / "t-0", config=CONFIG, clock=ManualClock(NOW), **options) as log,
        ):
            for name, query in QUERIES.items():
                with contextlib.suppress(CorruptBatch):
                    found[name] = query(log)
        return found

    right, compared, wrong = answers(), 0, []
    assert right.keys() == QUERIES.keys()
    for file, position, bit in flips(files):
        shutil.rmtree(tmp_path / "t-0")
        (tmp_path / "t-0").mkdir()
        for other, data in files.items():
            (tmp_path / "t-0" / other).write_bytes(flip(data, position, bit) if other == file else data)
        for name, answer in answers().items():
            compared += 1
            if answer != right[name]:
                wrong.append((file, position, bit, name, answer))
    assert wrong == []
    assert compared > 100
