"""Operations of klog.inspect, which only reads, and of the files of klog.spark. OPERATIONS are all: these, and those of
the other modules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from klog.handover import handover
from klog.inspect import diff, dump, groups, ls, page_cache, transactions, verify
from klog.spark.jobs import log_directory, segments_of
from klog.spark.stream_memory import StreamMemory
from tests.crash.operations import Book, content, nothing, operation
from tests.crash.rare import OPERATIONS
from tests.crash.repaired import on_disk
from tests.crash.tables import OWN, TARGET, Found, found_in
from tests.support.batches import NOW
from tests.support.tables import in_log, materialize

__all__ = ["OPERATIONS"]
VALUES = [b"%d" % number * 40 for number in range(6)]
SMALL = {"segment.bytes": 300, "segment.index.bytes": 96, "index.interval.bytes": 1}


def filled(root: Path) -> None:
    with klog.open(root / "data", create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", partitions=2, config=SMALL)
        for log in logs.logs():
            for value in VALUES:
                log.append([(b"k", value, NOW)])
        with logs.reader("t", "billing") as reader:
            assert len(list(reader)) == 12
    handover(root / "data", clock=ManualClock(NOW), properties_out="-")


def is_as_it_was(root: Path, _notes: list[Any]) -> None:
    assert content(root / "data") == {"t-0": VALUES, "t-1": VALUES}


def raise_for(problems: Iterable[str]) -> None:
    """What cannot be read is an error or a problem in the result; it is never left out."""
    if found := list(problems):
        raise KlogError("; ".join(found))


def check_listed(found: dict[str, Any]) -> None:
    partitions = [each for topic in found["topics"] for each in topic["partitions"]]
    raise_for(f"{each['path']}: {each['problem']}" for each in partitions if each["problem"])
    assert len(partitions) == 2


@operation(filled, is_as_it_was)
def list_a_log_dir(root: Path, _book: Book) -> None:
    check_listed(ls(root / "data"))


@operation(filled, is_as_it_was)
def list_what_is_in_the_page_cache(root: Path, _book: Book) -> None:
    check_listed(page_cache(root / "data", cells=2))


def filled_with_a_leftover(root: Path) -> None:
    filled(root)
    (root / "data" / "cleaner-offset-checkpoint.tmp").touch()


@operation(filled_with_a_leftover, is_as_it_was)
def verify_a_log_dir(root: Path, _book: Book) -> None:
    report = verify(root / "data", progress=lambda _event: None)
    raise_for(str(problem) for problem in report.problems if problem.kind != "leftover")
    assert report.partitions == 2 and len(report.problems) == 1


@operation(filled, is_as_it_was)
def list_groups_and_transactions(root: Path, _book: Book) -> None:
    data = root / "data"
    found = groups([data])
    raise_for(f"{data}: {problem}" for problem in (*found["problems"], *transactions([data])["problems"]))
    raise_for(each["problem"] for each in found["readers"] if each["problem"])
    assert [each["offset"] for each in found["readers"]] == [6, 6]


@operation(filled, is_as_it_was)
def compare_a_log_dir_with_itself(root: Path, _book: Book) -> None:
    data = root / "data"
    found = diff(data, data)
    raise_for(f"{data}: {each}" for each in found["partitions"] if each["state"] == "damaged")
    assert found["equal"] and len(found["partitions"]) == 2


@operation(filled, is_as_it_was)
def dump_a_log_dir(root: Path, _book: Book) -> None:
    data = root / "data"
    found = [(file.path, entry) for file in dump(data) for entry in file.entries]
    raise_for(f"{path}: {entry}" for path, entry in found if entry["type"] == "problem")
    assert sum(len(entry["records"]) for path, entry in found if "/t-" in path and entry["type"] == "batch") == 12
    with pytest.raises(FileNotFoundError):
        next(dump(data / "t-9"))


# ---- klog.spark ------------------------------------------------------------------------------------------------------


@operation(filled, is_as_it_was)
def look_at_a_log_dir_for_a_job(root: Path, _book: Book) -> None:
    data = log_directory(root / "data")
    assert all(size > 0 for number in range(2) for _, size in segments_of(f"{data}/t-{number}")[:-1])


def with_targets(root: Path) -> None:
    """Two targets: an empty directory, and one that a call has left before its first commit."""
    filled(root)
    (root / "empty").mkdir()
    (root / OWN / "files").mkdir(parents=True)
    (root / OWN / "files" / "left over").write_bytes(b"of a call that was killed")


def table_in(root: Path) -> Found:
    try:
        return found_in(on_disk(root))
    except (pa.ArrowException, OSError) as error:
        raise AssertionError("not a file of Parquet") from error


def is_materialized(root: Path, notes: list[Any]) -> None:
    """A1 and A3 of klog/spark/table_store.py: the table has all rows or none, and the next call does the rest."""
    rows = sorted(in_log(root / "data"))
    seen = table_in(root)
    assert seen.stored == rows or (seen.number == 0 and not notes)
    materialize(root / "data", root / TARGET)
    again = table_in(root)
    assert again.seen == again.stored == rows


@operation(with_targets, is_materialized)
def materialize_a_topic(root: Path, book: Book) -> None:
    for target in ("empty", TARGET):
        materialize(root / "data", root / target)
    book.note("materialized")


def memory_in(root: Path) -> StreamMemory:
    try:
        return StreamMemory(str(root / "query" / "sources"), "source")
    except ValueError as error:
        raise AssertionError("not a memory of a stream") from error


def remembers(root: Path, notes: list[Any]) -> None:
    """M3 of klog/spark/stream_memory.py: every id that was noted is there; the next one may be there too."""
    assert memory_in(root).ids in [ids_after(len(notes)), ids_after(len(notes) + 1)]


def ids_after(number: int) -> dict[str, str]:
    return {"t": f"id-{number}"} if number else {}


@operation(nothing, remembers)
def memory_of_a_stream(root: Path, book: Book) -> None:
    for number in range(1, 4):
        memory = memory_in(root)
        assert memory.ids == ids_after(number - 1)
        memory.note(ids_after(number))
        book.note(number)
