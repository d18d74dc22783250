"""Cleaning concurrent with appends and reads: it blocks no thread, and readers see only records that were written."""

from __future__ import annotations

import functools
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.cleaner import read_first_dirty
from klog.clock import ManualClock
from klog.errors import CorruptBatch, LogClosed, Overtaken
from klog.progress import Event
from tests.cleaner.logs import CONFIG, NOW, append, damage, fill, offsets, open_log, values

KEYS = 20
BATCHES = 150


def test_appends_and_reads_go_on(tmp_path: Path) -> None:
    """Check that in every full read the values of a key rise and offsets rise, and that the last values are correct."""
    failures: list[BaseException] = []
    done = threading.Event()

    with open_log(tmp_path / "t-0", config={"segment.bytes": 3000, "file.delete.delay.ms": 0}) as log:

        def write() -> None:
            try:
                for number in range(BATCHES):
                    log.append([(b"%d" % (i * number % KEYS), b"%09d" % number) for i in range(10)])
            except BaseException as error:
                failures.append(error)
            finally:
                done.set()

        def read(log: klog.Log) -> None:
            try:
                while not done.is_set():
                    log.refresh()
                    seen: dict[bytes, bytes] = {}
                    before = -1
                    for record in log.read(isolation="log_end"):
                        assert record.offset > before
                        before = record.offset
                        assert record.key is not None
                        assert record.value is not None
                        assert seen.get(record.key, b"") <= record.value
                        seen[record.key] = record.value
                    log.count()
            except BaseException as error:
                failures.append(error)

        other = open_log(tmp_path / "t-0", read_only=True)  # it shares no lock, like one in another process
        threads = [
            threading.Thread(target=write),
            threading.Thread(target=read, args=(log,)),
            threading.Thread(target=read, args=(other,)),
        ]
        for thread in threads:
            thread.start()
        rounds = 0
        while not done.is_set():
            rounds += log.compact().rounds
        for thread in threads:
            thread.join()
        other.close()
        rounds += log.compact(roll=True).rounds
        for failure in failures:
            raise failure
        assert rounds  # how many run beside the writer depends on the machine
        expected: dict[bytes, bytes] = {}
        for number in range(BATCHES):
            expected.update({b"%d" % (i * number % KEYS): b"%09d" % number for i in range(10)})
        assert values(log) == expected
        assert log.count() == KEYS


@pytest.mark.parametrize("change", ["compact", "purge", "truncate", "retention"])
@pytest.mark.parametrize("stage", ["index", "clean", "search", "purge"])
def test_a_dry_run_retries_when_a_writer_changes_the_log(tmp_path: Path, change: str, stage: str) -> None:
    """The dry run is read-only, as in another process. Nothing is damaged, so it raises nothing."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "compact,delete", "file.delete.delay.ms": 0}) as log:
        fill(log)
        reader = open_log(tmp_path / "t-0", read_only=True)
        seen: list[str] = []

        def write(event: Event) -> None:
            seen.append(event.stage)
            if seen.count(stage) != 1 or event.stage != stage:
                return
            if change == "compact":
                log.compact()
            elif change == "purge":
                log.purge_key(b"key-2")
            elif change == "truncate":
                log.truncate_to(50)
                append(log, [(b"n", b"n")])
            else:
                log.maybe_increment_log_start_offset(90)
                log.apply_retention()

        with reader:
            stats: Any
            if stage in ("index", "clean"):
                stats = reader.compact(dry_run=True, progress=write)
                assert stats.records_after <= stats.records_before
            else:
                stats = reader.purge_key(b"key-1", dry_run=True, progress=write)
                assert stats.records_removed > 0
            assert stage in seen
            assert 0 < stats.bytes_after < stats.bytes_before or change == "compact"


def test_damage_is_reported_while_a_writer_appends(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        damage(log)
        with open_log(tmp_path / "t-0", read_only=True) as reader:
            for dry_run in (reader.compact, functools.partial(reader.purge_key, b"key-1")):
                with pytest.raises(CorruptBatch):
                    dry_run(dry_run=True, progress=lambda _: log.roll() if log.segments[-1].size else None)


@pytest.mark.parametrize("act", ["compact", "purge"])
def test_a_log_deleted_by_the_progress_callback_is_closed(tmp_path: Path, act: str) -> None:
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", config={**CONFIG, "file.delete.delay.ms": 0})
        log = logs.log("t")
        fill(log)

        def delete(_: Event) -> None:
            if "t" in logs.topics():
                logs.delete_topic("t")

        run: Any = log.compact if act == "compact" else functools.partial(log.purge_key, b"key-1")
        with pytest.raises(LogClosed):
            run(progress=delete)
        assert logs.offline_directories == {}


@pytest.mark.parametrize("act", ["compact", "purge"])
def test_what_is_interrupted_each_time_is_given_up(tmp_path: Path, act: str) -> None:
    """The tenth time, with the next step in the error."""
    stage = "clean" if act == "compact" else "purge"
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        cuts: list[int] = []

        def change(event: Event) -> None:
            if event.stage == stage:
                cuts.append(log.truncate_to(60))
                append(log, [(b"key-1", b"%d" % number) for number in range(4)], batch=1)
                log.roll()

        run: Any = log.compact if act == "compact" else functools.partial(log.purge_key, b"key-1")
        with pytest.raises(Overtaken, match="t-0 was changed 10 times while .*: try again"):
            run(progress=change)
        assert len(cuts) >= 10
        run()


@pytest.mark.parametrize("stage", ["index", "clean", "purge"])
def test_a_segment_truncated_and_refilled_to_the_same_size_is_not_replaced(tmp_path: Path, stage: str) -> None:
    """A progress callback truncates and refills the log: no truncated record returns, no new record is lost."""
    policy = "delete" if stage == "purge" else "compact"
    with open_log(tmp_path / "t-0", config={"cleanup.policy": policy}) as log:
        append(log, [(b"old-1", b"1"), (b"old-2", b"1"), (b"old-1", b"2"), (b"old-2", b"2")], batch=1)
        log.roll()
        append(log, [(b"last", b"1")])
        size, cut = log.segments[0].size, []

        def rewrite_tail(event: Event) -> None:
            if not cut and event.stage == stage:
                cut.append(log.truncate_to(1))
                append(log, [(b"new-1", b"3"), (b"new-2", b"3"), (b"new-3", b"3")], batch=1)
                log.roll()
                assert log.segments[0].size == size
                append(log, [(b"last", b"2")])

        run: Any = functools.partial(log.purge_key, b"old-2") if stage == "purge" else log.compact
        run(progress=rewrite_tail)
        assert cut == [True]
        assert values(log) == {b"old-1": b"1", b"new-1": b"3", b"new-2": b"3", b"new-3": b"3", b"last": b"2"}


@pytest.mark.parametrize("by_hand", [True, False])
def test_records_appended_after_a_truncation_during_the_last_swap_stay_dirty(tmp_path: Path, by_hand: bool) -> None:
    """The logging handler for the line about the swap truncates and appends: the checkpoint must not be above the
    cleaned part."""
    clock = ManualClock(NOW)
    config = {"log.cleaner.dedupe.buffer.size": 1 << 20}
    with klog.open(tmp_path, create=True, clock=clock, config=config) as logs:
        logs.create_topic("t", config=CONFIG)
        log, cut = logs.log("t"), []
        append(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")], batch=1)
        log.roll()
        append(log, [(b"last", b"1")])

        class TruncateAfterTheSwap(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if not cut and record.getMessage().startswith("event=cleaned "):
                    cut.append(log.truncate_to(0))
                    append(log, [(b"c", b"1"), (b"c", b"2"), (b"c", b"3"), (b"d", b"1"), (b"e", b"1")], batch=1)
                    log.roll()
                    append(log, [(b"last", b"2")])

        cleaner, handler = logging.getLogger("klog.cleaner"), TruncateAfterTheSwap()
        cleaner.addHandler(handler)
        level = cleaner.level
        cleaner.setLevel(logging.INFO)
        try:
            if by_hand:
                log.compact()
            else:
                logs.start()
                clock.advance(60_000)
        finally:
            cleaner.removeHandler(handler)
            cleaner.setLevel(level)
        assert cut == [True]
        assert offsets(log) == [2, 3, 4, 5]
        assert read_first_dirty(log._core) == 5
