"""Operations on a directory that an interrupted operation has left: its process died after a rename, a creation or a
removal of a file.

There is one operation for each of some of these changes. There are also appends after a failure. OPERATIONS has these
operations and those of operations.py.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import klog
from klog.clock import ManualClock
from klog.disk import Files, RealFiles, os_error
from klog.errors import CorruptLog, KlogError
from klog.log.directory import checkpoint
from klog.manager.staging import abort_staged
from klog.repairing import repair, rescue
from tests.crash import staged
from tests.crash.operations import (
    OPERATIONS,
    SMALL,
    TWELVE,
    Book,
    Operation,
    content,
    damaged,
    is_prefix,
    nothing,
    operation,
    two_topics,
)
from tests.log import test_overflow as splits
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.failing_files import FailingFiles

__all__ = ["OPERATIONS"]
STOPS = 6
_CHANGES = ("rename", "mkdir", "rmdir", "unlink", "exchange")
Work = Callable[[Path, Files], object]


def after_stops(
    prepare: Callable[[Path], object],
    work: Work,
    check: Callable[[Path], object],
    changes: tuple[str, ...] = _CHANGES,
) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Register STOPS operations: in the directory of each, `work` was interrupted after a different rename, creation or
    removal."""

    def add(run: Callable[[Path], object]) -> Callable[[Path], object]:
        for part in range(STOPS):
            OPERATIONS[f"{run.__name__}_{part}"] = Operation(
                functools.partial(_interrupt, part, prepare, work, changes),
                lambda root, _book: run(root / "stopped"),
                lambda root, _notes: check(root / "stopped"),
            )
        return run

    return add


def _interrupt(part: int, prepare: Callable[[Path], object], work: Work, changes: tuple[str, ...], root: Path) -> None:
    whole = root / "whole"
    whole.mkdir()
    prepare(whole)
    files = CrashFiles()
    _run_in_copy(root, whole, work, files)
    stops = [number for number, step in enumerate(files.log, 1) if step.startswith(changes)]
    assert len(stops) >= STOPS, stops
    _run_in_copy(root, whole, work, CrashFiles(stops[part * len(stops) // STOPS]))
    shutil.rmtree(whole)


def _run_in_copy(root: Path, whole: Path, work: Work, files: CrashFiles) -> None:
    """Run work in a copy that always has the same path, since files may contain the path."""
    copy = root / "stopped"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    with contextlib.suppress(PowerCut):
        work(copy, files)


@contextlib.contextmanager
def opened(*paths: Path, files: Files | None = None, **options: Any) -> Any:
    logs = klog.open(list(paths), clock=ManualClock(NOW), files=files, **options)
    try:
        yield logs
        logs.close()
    finally:
        abandon(logs)


# ---- moves -----------------------------------------------------------------------------------------------------------


def two_places(root: Path) -> None:
    for name in "ab":
        (root / name).mkdir()
    with opened(root / "a", root / "b") as logs:
        logs.create_topic("t", config={**SMALL, "file.delete.delay.ms": 1000})
        for value in TWELVE:
            logs.log("t").append([(b"k", value)])
        if Path(logs.log("t").path).parent.name == "b":
            logs.move("t", 0, root / "a")


def move(root: Path, files: Files) -> None:
    with opened(root / "a", root / "b", files=files) as logs:
        logs.move("t", 0, root / "b")


def start_both(root: Path) -> None:
    with opened(root / "a", root / "b") as logs:
        assert [record.value for record in logs.log("t").read()] == TWELVE
    assert len(list(root.glob("*/t-0"))) == 1 and not list(root.glob("*/*-future"))


@after_stops(two_places, move, start_both, ("mkdir", "rename t-0", "unlink 0", "unlink klog"))
def start_after_moves_that_stopped(root: Path) -> None:
    start_both(root)


# ---- topics ----------------------------------------------------------------------------------------------------------


def change_topics(root: Path, files: Files) -> None:
    with opened(root, files=files) as logs:
        logs.create_topic("new", partitions=2)
        logs.add_partitions("t", 4)
        logs.delete_topic("u")


def start_with_topics(root: Path) -> dict[str, list[int]]:
    with opened(root) as logs:
        found: dict[str, list[int]] = logs.topics()
        assert found["t"] in ([0, 1], [0, 1, 2, 3]) and found.get("u", [0, 1]) == [0, 1]
        assert found.get("new", [0, 1]) == [0, 1]
        for number in (0, 1):
            assert [record.value for record in logs.log("t", number).read()] == TWELVE
    return found


def start_and_look_for_leftovers(root: Path) -> None:
    """A start that could not undo the creation of a topic or of partitions leaves that to the next start."""
    found = start_with_topics(root)
    assert len(list(root.glob("t-*"))) == len(found["t"]) and len(list(root.glob("new-*"))) == len(found.get("new", []))


@after_stops(two_topics, change_topics, start_and_look_for_leftovers)
def start_after_changes_of_topics_that_stopped(root: Path) -> None:
    start_with_topics(root)


# ---- one log ---------------------------------------------------------------------------------------------------------


def shorten(root: Path, files: Files) -> None:
    with opened(root, files=files) as logs:
        logs.log("t").truncate_to(5)
        logs.log("t").append([(b"k", b"0" * 40)])
        logs.log("u").truncate_fully_and_start_at(12)
        logs.log("u", 1).delete_records(9)
        logs.log("u", 1).apply_retention()


def start_shortened(root: Path) -> None:
    with opened(root) as logs:
        found = [record.value for record in logs.log("t").read()]
        assert found[:5] == TWELVE[:5] and (found == TWELVE[: len(found)] or found == [*TWELVE[:5], b"0" * 40])
        assert [record.value for record in logs.log("t", 1).read()] == TWELVE
        for log in logs.logs():
            assert [one for one in log.verify().problems if one.kind not in ("leftover", "gap")] == []


@after_stops(two_topics, shorten, start_shortened)
def start_after_truncations_that_stopped(root: Path) -> None:
    start_shortened(root)


def three_segments(root: Path) -> None:
    splits.three_segments(root / "t-0")


def start_split(root: Path) -> None:
    with splits.open_log(root / "t-0", recovery="kafka") as log:
        assert [segment.base_offset for segment in log.segments] == [0, *splits.FIRST_PARTS, 3 * splits.BEYOND]


@after_stops(three_segments, lambda root, files: splits.split(root / "t-0", files), start_split)
def start_after_splits_that_stopped(root: Path) -> None:
    start_split(root)


# ---- repairs ---------------------------------------------------------------------------------------------------------


def repair_without_exchange(root: Path, files: Files) -> None:
    def refused(path: str, _other: str) -> None:
        raise os_error(errno.EINVAL, path)

    with mock.patch.object(files, "exchange", refused):
        repair(root / "data", clock=ManualClock(NOW), files=files)


def repair_again(root: Path) -> None:
    repair(root / "data", clock=ManualClock(NOW + 1))


def is_repaired(root: Path) -> None:
    repair_again(root)
    found = content(root / "data")
    assert found["t-0"] == TWELVE[: len(found["t-0"])] and len(found["t-0"]) > 0
    assert found["u-1"] == TWELVE
    assert not [*root.glob("*/repaired"), *root.glob("*/original")]


@after_stops(damaged, repair_without_exchange, is_repaired)
def repair_after_repairs_that_stopped(root: Path) -> None:
    repair_again(root)


@operation(damaged, lambda root, _notes: is_repaired(root))
def repair_without_exchanges(root: Path, _book: Book) -> None:
    repair_without_exchange(root, RealFiles())


def is_rescued(root: Path, notes: list[Any]) -> None:
    shutil.rmtree(root / "to", ignore_errors=True)
    found = rescue(root / "data", root / "to", clock=ManualClock(NOW))
    assert found["problems"] == [] and [entry["error"] for entry in found["partitions"]] == [None] * 4
    assert content(root / "to")["u-1"] == TWELVE


@operation(damaged, is_rescued)
def rescue_a_log_dir(root: Path, _book: Book) -> None:
    (root / "to").mkdir()
    found = rescue(root / "data", root / "to", clock=ManualClock(NOW))
    assert "klog-topics.json" in found["files"] or found["missing_files"], found
    for entry in found["partitions"]:
        if entry["error"] is not None:
            raise KlogError(entry["error"])


# ---- failures --------------------------------------------------------------------------------------------------------


def append_after_failures(numbers: range, root: Path, book: Book) -> None:
    """Each disk operation of appends that roll fails once. The next appends undo the failed one, and succeed."""
    for nth in numbers:
        files = FailingFiles(nth, errno.ENOSPC, armed=False)
        with contextlib.suppress(OSError, KlogError), opened(root, files=files, create=True) as logs:
            if "t" not in logs.topics():
                logs.create_topic("t", config={**SMALL, "segment.bytes": 300})
            log = logs.log("t")
            files.armed = True
            for number in range(4):
                value = b"%d.%d" % (nth, number) + b"y" * 90
                book.note(("appending", [value]))
                try:
                    log.append([(None, value)])
                except (OSError, KlogError):
                    book.note(("undone", [value]))
                    continue
                book.note(("appended", [value]))
            files.armed = False


# Few failures in each operation: a kill repeats all that come before it.
for _first in range(1, 40, 3):
    OPERATIONS[f"append_after_failures_from_{_first}"] = Operation(
        nothing, functools.partial(append_after_failures, range(_first, _first + 3)), is_prefix
    )


# ---- leftovers of earlier stops, and damage --------------------------------------------------------------------------


def with_a_stray(root: Path) -> None:
    """The second log.dir has the same partition with another topic id, and an old list of topics."""
    two_places(root)
    old = (root / "b" / "klog-topics.json").read_bytes()
    with opened(root / "a", root / "b") as logs:
        logs.create_topic("more")
    (root / "b" / "klog-topics.json").write_bytes(old)
    shutil.copytree(root / "a" / "t-0", root / "b" / "t-0")
    (root / "b" / "t-0" / "partition.metadata").write_bytes(checkpoint.format_metadata(uuid.UUID(int=7)))


def stray_is_aside(root: Path, _notes: list[Any]) -> None:
    with opened(root / "a", root / "b") as logs:
        assert [record.value for record in logs.log("t").read()] == TWELVE and "more" in logs.topics()
    assert (root / "a" / "t-0").is_dir() and not (root / "b" / "t-0").exists()
    assert len(list((root / "b").glob("t-0.*-stray"))) == 1


@operation(with_a_stray, stray_is_aside)
def start_with_a_stray(root: Path, _book: Book) -> None:
    with opened(root / "a", root / "b") as logs:
        assert [record.value for record in logs.log("t").read()] == TWELVE


def with_leftovers(root: Path) -> None:
    """Files that an interrupted process leaves: their names tell which operation was interrupted."""
    two_topics(root)
    (root / "klog-commit-job.json.tmp").write_text("{")
    (root / checkpoint.CLEAN_SHUTDOWN_RENAMED).write_bytes(b"")
    (root / "t-0" / f"{0:020d}.log.deleted").write_bytes(b"of an interrupted retention")
    (root / "klog-audit.jsonl").write_text('{"torn')


def without_leftovers(root: Path, _notes: list[Any]) -> None:
    repair(root, clock=ManualClock(NOW))
    with opened(root) as logs:
        for log in logs.logs():
            found = [record.value for record in log.read()]
            assert set(found) <= set(TWELVE) if log.name == "u-0" else found == TWELVE


@operation(with_leftovers, without_leftovers)
def go_on_after_leftovers(root: Path, _book: Book) -> None:
    repair(root, clock=ManualClock(NOW))
    with klog.Log.open(root / "t-0", config=SMALL, clock=ManualClock(NOW)) as log:
        assert [record.value for record in log.read()] == TWELVE
    with opened(root) as logs:
        logs.log("u").purge_key(b"k", roll=True)


def one_topic(root: Path) -> None:
    with opened(root, create=True) as logs:
        logs.create_topic("t", config=SMALL)
        logs.log("t").append([(b"k", TWELVE[0])])


def is_there_or_gone(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert [[record.value for record in log.read()] for log in logs.logs()] in ([], [TWELVE[:1]])


@operation(one_topic, is_there_or_gone)
def delete_the_last_topic(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.delete_topic("t")


def below_its_start(root: Path) -> None:
    """The log start is above records whose segments still exist."""
    two_topics(root)
    with opened(root) as logs:
        logs.log("t").delete_records(9)


def cut_or_not(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        found = [record.value for record in logs.log("t").read()]
        log = logs.log("t")
        assert found == TWELVE[log.log_start_offset : log.log_end_offset], (log, found)
        assert log.log_start_offset <= 9 and 5 <= log.log_end_offset <= 12, log
        assert [record.value for record in logs.log("u").read()] == TWELVE


@operation(below_its_start, cut_or_not)
def truncate_below_the_log_start(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.log("t").truncate_to(5)


def damaged_in_the_middle(root: Path) -> None:
    """After a crash: a bad batch above the recovery point, with valid ones after it."""
    two_topics(root)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink()
    log = sorted((root / "t-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)


def cut_at_the_damage(root: Path, _notes: list[Any]) -> None:
    with opened(root, recovery="kafka") as logs:
        found = [record.value for record in logs.log("t").read()]
        assert found == TWELVE[: len(found)] and 0 < len(found) < 12
        assert [record.value for record in logs.log("u").read()] == TWELVE


@operation(damaged_in_the_middle, cut_at_the_damage)
def refuse_then_cut_at_a_damage(root: Path, _book: Book) -> None:
    with contextlib.suppress(CorruptLog), opened(root) as logs:
        raise AssertionError(f"not refused: {logs.log('t')}")
    with opened(root, recovery="kafka") as logs:
        assert len(list(logs.log("t").read())) < 12


def misnamed(root: Path) -> None:
    """The offsets of a segment's batches are all too far from the offset in its name."""
    splits.make(root / "t-0", {0: splits.run_of(0, 3), 10: splits.run_of(splits.BEYOND + 50, 20)})


def renamed_or_not(root: Path, _notes: list[Any]) -> None:
    with splits.open_log(root / "t-0", recovery="kafka") as log:
        assert [segment.base_offset for segment in log.segments][:2] == [0, splits.BEYOND + 50]
        assert len(list(log.read())) == 69


@operation(misnamed, renamed_or_not)
def rename_a_segment_at_a_load(root: Path, _book: Book) -> None:
    splits.open_log(root / "t-0", recovery="kafka").close()


def damaged_below_the_recovery_point(root: Path) -> None:
    two_topics(root)
    (root / ".kafka_cleanshutdown").unlink()
    log = max(path for path in (root / "t-0").glob("*.log") if path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)


def is_refused(root: Path, _notes: list[Any]) -> None:
    """P5: nothing is cut."""
    with opened(root) as logs:
        with contextlib.suppress(CorruptLog):
            raise AssertionError(f"not refused: {logs.log('t')}")
        assert [record.value for record in logs.log("u").read()] == TWELVE


@operation(damaged_below_the_recovery_point, is_refused)
def refuse_a_damage_below_the_recovery_point(root: Path, _book: Book) -> None:
    with opened(root) as logs, contextlib.suppress(CorruptLog):
        logs.log("t")


def last_with_records(root: Path) -> Path:
    return max(path for path in (root / "t-0").glob("*.log") if path.stat().st_size)


def misnamed_last(root: Path) -> None:
    two_topics(root)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink()
    last = last_with_records(root)
    for path in (root / "t-0").glob(f"{last.stem}.*"):
        path.rename(path.with_name(f"{int(last.stem) + 1:020d}{path.suffix}"))


@operation(misnamed_last, is_refused)
def refuse_a_name_above_its_first_batch(root: Path, _book: Book) -> None:
    with opened(root, recovery="kafka") as logs, contextlib.suppress(CorruptLog):
        raise AssertionError(f"not refused: {logs.log('t')}")


def twice(root: Path) -> None:
    two_topics(root)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink()
    last = last_with_records(root)
    data = last.read_bytes()
    last.write_bytes(data + data[-int.from_bytes(data[8:12]) - 12 :])


def is_there_once(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert [record.value for record in logs.log("t").read()] == TWELVE


@operation(twice, is_there_once)
def cut_a_batch_that_is_there_twice(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        assert [record.value for record in logs.log("t").read()] == TWELVE


# ---- commits ---------------------------------------------------------------------------------------------------------


def commit_staged_files(root: Path, files: Files) -> None:
    staged.commit(root, staged.stage(root, files), files)


def finish_the_commit(root: Path) -> None:
    abort_staged(str(root), staged.TOKEN)
    klog.open(root, clock=ManualClock(staged.NOW)).close()


def is_finished(root: Path) -> None:
    finish_the_commit(root)
    staged.check(root)


@after_stops(staged.fill, commit_staged_files, is_finished, ("rename 0", "unlink"))
def start_after_commits_that_stopped(root: Path) -> None:
    finish_the_commit(root)
