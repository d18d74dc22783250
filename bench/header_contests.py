"""Batch headers: a row for each batch of a log.

    headers columns   headers of 16 KiB batches as Arrow columns; the peer opens each batch in Python
    headers count     the number of records, from a column; the peer is a loop in Python over headers

The peers compute the same rows from the same files, which are in the page cache.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.workloads import workload
from klog.disk import RealFiles
from klog.segment import HeaderIterator

Row = tuple[int, int, int, int]  # position, base offset, records, size
_FIELDS = ("position", "base_offset", "count", "size")


def _log(tiny: bool, folder: Path) -> tuple[klog.Log, int]:
    """Return a log of batches of about 16 KiB, open for reading, and its number of records."""
    load = workload("100B", tiny=tiny)
    records = load.tuples()
    with klog.Log.open(folder / "headers-0") as log:
        for _ in range(1 if tiny else 40):
            for first in range(0, len(records), 128):
                log.append(records[first : first + 128], compression="none")
        count = log.log_end_offset
    return klog.Log.open(folder / "headers-0", read_only=True), count


def opened(log: klog.Log) -> list[Row]:
    return [(batch.position, batch.base_offset, batch.count, batch.size) for batch in log.read().batches()]


def walked(log: klog.Log) -> list[Row]:
    files = RealFiles()
    rows: list[Row] = []
    for segment in log.segments:
        file = files.open(segment.path)
        walk = HeaderIterator(file, 0, segment.size)
        rows += [(header.position, header.base_offset, header.count, header.size) for header in walk]
        file.close()
    return rows


def columns(log: klog.Log) -> list[Row]:
    import pyarrow

    rows: list[Row] = []
    for part in log.read().batch_headers(_FIELDS):
        found = pyarrow.record_batch(part)
        rows += zip(*(column.to_pylist() for column in found.columns), strict=True)
    return rows


def exported(log: klog.Log) -> int:
    """Export the columns to pyarrow. Returns the number of rows."""
    import pyarrow

    return sum(pyarrow.record_batch(part).num_rows for part in log.read().batch_headers(_FIELDS))


def counted(log: klog.Log) -> int:
    import pyarrow.compute

    counts = log.read().batch_headers(["count"]).to_arrow()["count"]
    total: int = pyarrow.compute.sum(counts).as_py()
    return total


def _columns(tiny: bool, folder: Path) -> Contest:
    log, records = _log(tiny, folder)

    def check() -> None:
        rows = columns(log)
        assert rows == opened(log) == walked(log)
        assert exported(log) == len(rows)
        assert sum(count for _, _, count, _ in rows) == records

    return Contest(
        "headers columns",
        len(walked(log)),
        0,
        (
            Contestant("klog batch_headers(), as Arrow columns", partial(exported, log)),
            Contestant("a Python object per header, walked", partial(walked, log)),
            Contestant("klog batches(), each opened", partial(opened, log)),
        ),
        check,
        log.close,
    )


def _count(tiny: bool, folder: Path) -> Contest:
    log, records = _log(tiny, folder)

    def check() -> None:
        assert counted(log) == sum(count for _, _, count, _ in walked(log)) == log.count() == records

    return Contest(
        "headers count",
        len(walked(log)),
        0,
        (
            Contestant("klog batch_headers(), column summed", partial(counted, log)),
            Contestant("klog Log.count()", log.count),
            Contestant("a Python object per header, summed", lambda: sum(count for _, _, count, _ in walked(log))),
        ),
        check,
        log.close,
    )


FACTORIES: dict[str, Factory] = {"headers columns": _columns, "headers count": _count}
