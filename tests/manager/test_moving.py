"""A partition moves between log directories: nothing is lost or duplicated, and users of the log continue."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import ConfigUnknown, DuplicateLog, ReadOnly, StorageOffline, UnknownTopicOrPartition
from klog.manager import moving
from klog.manager.catalog import TopicCatalog
from klog.manager.directories import LogDirectory
from klog.manager.move_note import NOTE
from klog.progress import Event
from tests.support.abandon import abandon
from tests.support.batches import marker, produced, transactional
from tests.support.crash_files import CrashFiles
from tests.support.failing_files import FailingFiles
from tests.support.patience import PATIENCE
from tests.support.state_directory import StateDirectory

NOW = 1_700_000_000_000
CONFIG = {"segment.bytes": 700, "index.interval.bytes": 100, "file.delete.delay.ms": 1000}


def opened(tmp_path: Path, clock: ManualClock | None = None, **options: Any) -> klog.LogManager:
    return klog.open([tmp_path / "a", tmp_path / "b"], create=True, clock=clock or ManualClock(NOW), **options)


def filled(logs: klog.LogManager, records: int = 60) -> klog.Log:
    logs.create_topic("t", config=CONFIG)
    log = logs.log("t")
    for number in range(records):
        log.append([(b"k", b"%d" % number)])
    return log


def values(log: klog.Log) -> list[int]:
    return [int(record.value or b"-1") for record in log.read()]


def directories(tmp_path: Path) -> list[str]:
    """Every partition directory, live or future, with its suffix."""
    return sorted(f"{path.parent.name}/{path.name.split('.')[0]}{path.name[-7:] if '.' in path.name else ''}"
                  for path in tmp_path.glob("*/*/"))  # fmt: skip


def test_a_partition_moves_with_its_state(tmp_path: Path) -> None:
    """10.3: replaceCurrentWithFutureLog."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        log = filled(logs)
        before = [(segment.base_offset, segment.size) for segment in log.segments if segment.size]
        topic_id, epochs = log.topic_id, log.leader_epochs
        early = iter(log.read())
        assert next(early).value == b"0"
        seen: list[Event] = []
        logs.move("t", 0, tmp_path / "b", progress=seen.append)
        assert Path(log.path) == tmp_path / "b" / "t-0"
        assert logs.log("t") is log
        assert values(log) == list(range(60))
        assert [(segment.base_offset, segment.size) for segment in log.segments if segment.size] == before
        assert all(Path(segment.path).parent == tmp_path / "b" / "t-0" for segment in log.segments)
        assert (log.topic_id, log.leader_epochs) == (topic_id, epochs)
        assert [int(record.value or b"") for record in early] == list(
            range(1, 60)
        )  # the position is in the old directory while that exists
        assert seen
        assert all(event.stage == "move" and 0 < event.done <= (event.total or 0) for event in seen)
        log.append([(b"k", b"60")])
        assert directories(tmp_path) == ["a/t-0-delete", "b/t-0"]
        assert not (tmp_path / "b" / "t-0" / NOTE).exists()
        logs.start()
        clock.advance(1000)
        assert directories(tmp_path) == ["b/t-0"]
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 61\n"
    assert (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    assert not klog.verify(tmp_path / "b").problems
    with opened(tmp_path) as logs:
        log = logs.log("t")
        assert log.recovery.clean_shutdown
        assert values(log) == list(range(61))
        logs.move("t", 0, tmp_path / "a")  # and back, under the former names
        assert values(log) == list(range(61))
        assert next(iter(log.read(30))).value == b"30"
        logs.move("t", 0, tmp_path / "a")  # where it already is
        assert log.append([(None, b"61")]).first_offset == 61


def test_producers_and_a_log_start_inside_a_segment_move_too(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t", config=CONFIG)
    batch = klog.record.encode(
        [(b"k", b"%d" % number, NOW) for number in range(30)],
        producer_id=9,
        producer_epoch=3,
        base_sequence=0,
        leader_epoch=0,
    )
    (tmp_path / "a" / "t-0" / "00000000000000000000.log").write_bytes(batch)  # as written for a broker's producer
    (tmp_path / "a" / ".kafka_cleanshutdown").unlink()
    with opened(tmp_path) as logs:
        log = logs.log("t")
        producers = log.producers
        assert producers[9].epoch == 3
        log.append([(b"k", b"%d" % number) for number in range(30, 61)])
        log.delete_records(17)
        logs.move("t", 0, tmp_path / "b")
        assert log.producers == producers
        assert log.log_start_offset == 17
        assert values(log) == list(range(17, 61))
        abandon(logs)
    with opened(tmp_path) as logs:
        log = logs.log("t")
        assert log.log_start_offset == 17  # known before the move ended
        assert values(log) == list(range(17, 61))
        assert log.producers == producers


def test_duplicates_are_recognized_after_a_move(tmp_path: Path) -> None:
    """A snapshot has only the last batch of a producer, whose retries may be of the last five."""
    with opened(tmp_path) as logs:
        log = filled(logs)
        infos = [log.append_batches(produced(9, 0, sequence)) for sequence in range(5)]
        logs.move("t", 0, tmp_path / "b")
        again = [log.append_batches(produced(9, 0, sequence)) for sequence in range(5)]
        assert [(info.first_offset, info.is_duplicate) for info in again] == [
            (info.first_offset, True) for info in infos
        ]
        assert not log.append_batches(produced(9, 0, 5)).is_duplicate


def test_a_transaction_whose_marker_is_not_replicated_stays_unstable_in_a_move(tmp_path: Path) -> None:
    """A snapshot has only open transactions."""
    with opened(tmp_path) as logs:
        log = filled(logs)
        log.update_high_watermark(60)
        log.append_batches(transactional(9, 0, 0))
        log.append_batches(marker(9, 0, "abort"), origin="coordinator")
        log.update_high_watermark(61)
        assert log.last_stable_offset == 60
        logs.move("t", 0, tmp_path / "b")
        assert log.last_stable_offset == 60
        log.update_high_watermark(62)
        assert log.last_stable_offset == 62


@pytest.mark.parametrize("start", [30, 500])
def test_a_log_start_of_an_earlier_partition_of_the_name_does_not_count(tmp_path: Path, start: int) -> None:
    """Another program has removed it from the target, with its checkpoint left as it was."""
    with opened(tmp_path) as logs:
        filled(logs)
    (tmp_path / "b" / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    with opened(tmp_path) as logs:
        logs.move("t", 0, tmp_path / "b")
        abandon(logs)
    with opened(tmp_path) as logs:
        assert values(logs.log("t")) == list(range(60))


def test_a_gap_between_segments_moves_too(tmp_path: Path) -> None:
    """A recovery of the whole log would take a gap that is not noted for lost records."""
    with opened(tmp_path) as logs:
        logs.create_topic("t", config=CONFIG)
        log = logs.log("t")
        for offset in (0, 10):
            data = klog.record.encode([(b"k", bytes(500), NOW)], base_offset=offset)
            log.append_batches(data, origin="replication")
        assert [segment.base_offset for segment in log.segments] == [0, 10]
        logs.move("t", 0, tmp_path / "b")
    assert not klog.verify(tmp_path / "b").problems
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / "b" / name).unlink()
    with opened(tmp_path) as logs:
        assert [record.offset for record in logs.log("t").read()] == [0, 10]


def test_a_managed_high_watermark_moves_too(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        log = filled(logs)
        log.update_high_watermark(40)
        logs.move("t", 0, tmp_path / "b")
        assert log.is_managed
        assert log.high_watermark == 40
        log.append([(None, b"60")])
        assert log.high_watermark == 40


def test_a_configuration_that_only_the_log_has_moves_too(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        filled(logs)
    for home in ("a", "b"):
        (tmp_path / home / "klog-topics.json").unlink()
    with opened(tmp_path) as logs:
        log = logs.log("t")
        logs.move("t", 0, tmp_path / "b")
        with pytest.raises(ConfigUnknown):
            log.apply_retention()
        log.update_config(klog.LogConfig(CONFIG | {"retention.bytes": 0}))
        logs.move("t", 0, tmp_path / "a")
        assert log.config.segment_bytes == 700
        assert log.apply_retention()


def test_the_epoch_of_a_leader_without_a_record_moves_too(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        log = filled(logs)
        log.begin_leader_epoch(7)
        epochs = log.leader_epochs
        for home in ("b", "a"):
            logs.move("t", 0, tmp_path / home)
            assert (log.leader_epoch, log.leader_epochs) == (7, epochs)
        log.append([(b"k", b"60")])
        assert next(iter(log.read(60))).leader_epoch == 7


def test_metrics_and_listeners_survive_a_move(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        log = filled(logs)
        notified: list[int] = []
        log._core.watermark.listen(notified.append)
        before = log.metrics()["MessagesInPerSec"]
        logs.move("t", 0, tmp_path / "b")
        log.append([(b"k", b"60")])
        assert log.metrics()["MessagesInPerSec"] == before + 1
        assert notified[-1] == 61


def test_appends_and_reads_go_on_during_a_move(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        log = filled(logs)
        stop, failures = threading.Event(), []

        def write() -> None:
            number = 60
            try:
                while not stop.is_set():
                    assert log.append([(b"k", b"%d" % number)]).first_offset == number
                    number += 1
            except BaseException as error:
                failures.append(error)

        def read() -> None:
            try:
                while not stop.is_set():
                    found = values(log)
                    assert found == list(range(len(found)))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for number in range(6):
            logs.move("t", 0, tmp_path / "ba"[number % 2])
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        found = values(log)
        assert found == list(range(log.log_end_offset))
        assert len(found) > 60


def test_retention_and_truncation_during_the_copy_are_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = moving._catch_up
    with opened(tmp_path) as logs:
        log = filled(logs)

        def catch_up(*args: Any) -> None:
            plain(*args)
            log.truncate_to(35)
            for number in range(35, 50):
                log.append([(b"k", b"%d" % (1000 + number))])
            log.roll()
            log.delete_records(20)
            log.apply_retention()

        monkeypatch.setattr(moving, "_catch_up", catch_up)
        logs.move("t", 0, tmp_path / "b")
        wanted = [*range(20, 35), *range(1035, 1050)]
        assert values(log) == wanted
    with opened(tmp_path) as logs:
        assert values(logs.log("t")) == wanted
        assert not klog.verify(tmp_path / "b").problems


def test_a_compaction_during_the_copy_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has removed an aborted transaction with its marker. The transaction index of the first copy would make the
    producer's next transaction an aborted one: the next compaction would remove it."""
    plain, clock = moving._catch_up, ManualClock(NOW)
    config = {"cleanup.policy": "compact", "delete.retention.ms": 0, "file.delete.delay.ms": 0}
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t", config=config)
        log = logs.log("t")

        def compact(number: int) -> None:
            log.append([(b"k", b"%d" % number)])
            log.compact(roll=True)
            clock.advance(1)

        def catch_up(*args: Any) -> None:
            plain(*args)
            log.append_batches(produced(7, 0, 2, key=b"p"))
            for number in range(4):
                compact(number)
            assert not list(Path(log.path).glob("*.txnindex"))

        log.append_batches(transactional(7, 0, 0, 2, key=b"aborted"))
        log.append_batches(marker(7, 0, "abort"), origin="coordinator")
        log.roll()
        monkeypatch.setattr(moving, "_catch_up", catch_up)
        logs.move("t", 0, tmp_path / "b")
        assert log.aborted_transactions() == []
        log.append_batches(transactional(7, 0, 3, key=b"committed"))
        log.append_batches(marker(7, 0, "commit"), origin="coordinator")
        compact(4)
        assert [record.key for record in log.read(isolation="read_committed")] == [b"p", b"committed", b"k"]


def test_invalid_moves_raise(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        filled(logs, 3)
        with pytest.raises(ValueError, match="directory=.* is not a log.dir of this LogManager: choose from"):
            logs.move("t", 0, tmp_path / "c")
        with pytest.raises(UnknownTopicOrPartition):
            logs.move("u", 0, tmp_path / "b")
        with klog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as reader, pytest.raises(ReadOnly):
            reader.move("t", 0, tmp_path / "b")
    (tmp_path / "b" / "recovery-point-offset-checkpoint").unlink()
    for path in [*(tmp_path / "b").iterdir()]:
        path.unlink()
    (tmp_path / "b").rmdir()
    (tmp_path / "b").write_bytes(b"")
    with opened(tmp_path) as logs, pytest.raises(StorageOffline):
        logs.move("t", 0, tmp_path / "b")


def test_metrics_exist_once_after_a_move(tmp_path: Path) -> None:
    """LM11: after the swap of current and future log."""
    with opened(tmp_path) as logs:
        log = filled(logs)
        logs.move("t", 0, tmp_path / "b")
        assert logs.metrics()["LogEndOffset"] == {"t-0": 60}
        assert logs.metrics()["Size"] == {"t-0": log.size}


def test_a_move_ends_when_its_topic_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = moving._catch_up
    with opened(tmp_path) as logs:
        filled(logs)

        def catch_up(*args: Any) -> None:
            plain(*args)
            logs.delete_topic("t")

        monkeypatch.setattr(moving, "_catch_up", catch_up)
        with pytest.raises(UnknownTopicOrPartition, match="was deleted while it was being moved"):
            logs.move("t", 0, tmp_path / "b")
        assert directories(tmp_path) == ["a/t-0-delete"]
        monkeypatch.undo()
        filled(logs)
        logs.move("t", 0, tmp_path / "b")  # the first move is over


# ---- what a crash leaves ---------------------------------------------------------------------------------------------


def note(path: Path, *, ready: bool, source: Path, key: tuple[str, int] = ("t", 0)) -> None:
    document = {"version": 1, "topic": key[0], "partition": key[1], "from": str(source), "ready": ready, "end": 60}
    (path / NOTE).write_text(json.dumps(document))


def split_up(tmp_path: Path) -> tuple[Path, Path]:
    """A partition in a, and a whole future copy of it in b."""
    with opened(tmp_path) as logs:
        filled(logs).roll()
    live, copy = tmp_path / "a" / "t-0", tmp_path / "b" / f"t-0.{uuid.uuid4().hex}-future"
    shutil.copytree(live, copy)
    return live, copy


def two_live(tmp_path: Path, *, ready: bool = True) -> tuple[Path, Path]:
    """What a crash between the two renames of a move leaves: the original in a, and the copy in b."""
    live, copy = split_up(tmp_path)
    note(copy, ready=ready, source=live.parent)
    for home in ("a", "b"):
        (tmp_path / home / ".kafka_cleanshutdown").unlink()
    return live, copy.rename(copy.parent / live.name)


def test_a_future_copy_beside_the_live_log_is_removed(tmp_path: Path) -> None:
    for ready in (False, True):
        live, copy = split_up(tmp_path / str(ready))
        note(copy, ready=ready, source=live.parent)
        with opened(tmp_path / str(ready)) as logs:
            assert directories(tmp_path / str(ready)) == ["a/t-0"]
            assert values(logs.log("t")) == list(range(60))


def test_a_complete_future_copy_replaces_a_missing_log(tmp_path: Path) -> None:
    live, copy = split_up(tmp_path)
    note(copy, ready=True, source=live.parent)
    live.rename(live.parent / f"t-0.{uuid.uuid4().hex}-delete")
    with opened(tmp_path) as logs:
        assert directories(tmp_path) == ["a/t-0-delete", "b/t-0"]
        assert values(logs.log("t")) == list(range(60))
        assert not (tmp_path / "b" / "t-0" / NOTE).exists()


def test_of_two_live_directories_the_original_is_left_over(tmp_path: Path) -> None:
    """The process has died between the two renames."""
    live, copy = two_live(tmp_path)
    with klog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as reader:
        assert Path(reader.log("t").path) == copy
        assert values(reader.log("t")) == list(range(60))
    for _ in range(2):
        with opened(tmp_path) as logs:
            assert directories(tmp_path) == ["a/t-0-delete", "b/t-0"]
            assert values(logs.log("t")) == list(range(60))
            assert not (copy / NOTE).exists()
        assert (live.parent / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"


def append_to(live: Path, _: Path) -> None:
    """A broker has appended to the original, of which alone it knew."""
    with klog.Log.open(live, clock=ManualClock(NOW)) as log:
        log.append([(b"k", b"60")])


def append_and_roll(live: Path, _: Path) -> None:
    with klog.Log.open(live, clock=ManualClock(NOW)) as log:
        log.append([(b"k", b"60")])
        log.roll()


def truncate(live: Path, _: Path) -> None:
    with klog.Log.open(live, clock=ManualClock(NOW)) as log:
        log.truncate_to(50)


def of_another_topic(live: Path, _: Path) -> None:
    (live / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


def without_a_note(_: Path, copy: Path) -> None:
    (copy / NOTE).unlink()


def not_ready(live: Path, copy: Path) -> None:
    note(copy, ready=False, source=live.parent)


def unreadable(_: Path, copy: Path) -> None:
    (copy / NOTE).write_text('{"version": 1, "topic": "t", "partition": 0, "from": "a", "ready": true}')


@pytest.mark.parametrize(
    "change", [append_to, append_and_roll, truncate, without_a_note, not_ready, unreadable], ids=lambda it: it.__name__
)
def test_two_live_directories_stay_if_it_is_not_certain_that_one_is_left_over(
    tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    live, copy = two_live(tmp_path)
    change(live, copy)
    before = sorted(path for path in tmp_path.glob("*/t-0/*"))
    for read_only in (True, False):
        with (
            pytest.raises(DuplicateLog),
            klog.open([tmp_path / "a", tmp_path / "b"], read_only=read_only, clock=ManualClock(NOW)) as logs,
        ):
            logs.log("t")
    assert sorted(path for path in tmp_path.glob("*/t-0/*")) == before


def test_a_directory_of_another_topic_is_not_left_over(tmp_path: Path) -> None:
    """The topic was deleted and created again while the log.dir of the copy was missing."""
    live, copy = two_live(tmp_path)
    of_another_topic(copy, live)
    with opened(tmp_path):
        assert live.is_dir()
        assert [path.name[-6:] for path in copy.parent.glob("t-0*")] == ["-stray"]


def test_an_original_that_comes_back_later_is_left_over(tmp_path: Path) -> None:
    live, copy = two_live(tmp_path)
    hidden = live.parent.rename(tmp_path / "unmounted")
    (tmp_path / "a").write_bytes(b"")
    with klog.open([tmp_path / "a", tmp_path / "b"], clock=ManualClock(NOW)) as logs:
        assert logs.log("t").append([(b"k", b"60")]).first_offset == 60
        assert (copy / NOTE).exists()
    (tmp_path / "a").unlink()
    hidden.rename(tmp_path / "a")
    with opened(tmp_path) as logs:
        assert directories(tmp_path) == ["a/t-0-delete", "b/t-0"]
        assert values(logs.log("t")) == list(range(61))
        assert not (copy / NOTE).exists()


def test_a_start_removes_the_note_of_a_finished_move(tmp_path: Path) -> None:
    """The process has died after the second rename."""
    live, copy = two_live(tmp_path)
    live.rename(live.parent / f"t-0.{uuid.uuid4().hex}-delete")
    with opened(tmp_path):
        assert not (copy / NOTE).exists()


def test_a_reader_finds_the_log_at_each_step_of_a_move(tmp_path: Path) -> None:
    paths, homes = [tmp_path / "a", tmp_path / "b"], set[str]()

    def read() -> None:
        with klog.open(paths, read_only=True, clock=ManualClock(NOW)) as reader:
            assert values(reader.log("t")) == list(range(12))
            homes.add(Path(reader.log("t").path).parent.name)

    for path in paths:
        path.mkdir()
    disk = CrashFiles()
    disk.keep(tmp_path)
    with opened(tmp_path, files=disk) as logs:
        filled(logs, 12)
        disk.before_step = read
        logs.move("t", 0, tmp_path / "b")
        disk.before_step = None
    assert homes == {"a", "b"}


@pytest.mark.parametrize("look", ["entries", "identity"])
def test_a_reader_finds_a_partition_that_moves_to_a_directory_it_has_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    plain = getattr(LogDirectory, look)

    def then_move(directory: LogDirectory, *args: Any) -> Any:
        found = plain(directory, *args)
        if directory.read_only and not (tmp_path / "a" / "t-0").exists():
            logs.move("t", 0, tmp_path / "a")
        return found

    with opened(tmp_path) as logs:
        filled(logs)
        logs.move("t", 0, tmp_path / "b")
        with klog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as reader:
            monkeypatch.setattr(LogDirectory, look, then_move)
            if look == "entries":
                assert reader.topics() == {"t": [0]}
            else:
                assert values(reader.log("t")) == list(range(60))
        assert Path(logs.log("t").path).parent.name == "a"


def test_a_power_cut_during_a_move_leaves_one_log_and_checkpoints_of_it_alone(tmp_path: Path) -> None:
    root, states = tmp_path / "run", StateDirectory(tmp_path / "states")
    seen, both = set[bytes](), set[int]()

    def cut() -> None:
        for state in disk.cuts(root, disk.steps, randoms=1):
            if state.key not in seen:
                seen.add(state.key)
                live = [path for path in state.directories if Path(path).name == "t-0"]
                assert live, (state.name, disk.log[-5:])  # a broker would begin an empty log
                both.add(len(live))
                with opened(states.lay_out(state)) as logs:
                    assert values(logs.log("t")) == [0, 1]
                    logs.log("t").close()
                for name in ("a", "b"):
                    problems = klog.verify(states.path / name).problems
                    assert [it for it in problems if it.kind != "leftover"] == [], (state.name, disk.log[-5:])

    disk = CrashFiles()
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
    disk.keep(root)
    with opened(root, files=disk) as logs:
        filled(logs, 2).flush()
        disk.before_step = cut
        logs.move("t", 0, root / "b")
        cut()
        disk.before_step = None
    assert len(seen) > 50
    assert both == {1, 2}


def test_a_future_copy_waits_while_the_logs_directory_is_offline(tmp_path: Path) -> None:
    live, copy = split_up(tmp_path)
    note(copy, ready=True, source=live.parent)
    hidden = live.parent.rename(tmp_path / "unmounted")
    (tmp_path / "a").write_bytes(b"")
    with klog.open([tmp_path / "a", tmp_path / "b"], clock=ManualClock(NOW)) as logs:
        assert list(logs.offline_directories) == [str(tmp_path / "a")]
        assert copy.is_dir()
        with pytest.raises(StorageOffline):
            logs.log("t")
    (tmp_path / "a").unlink()
    hidden.rename(tmp_path / "a")
    with opened(tmp_path) as logs:
        assert directories(tmp_path) == ["a/t-0"]
        assert values(logs.log("t")) == list(range(60))


def test_a_brokers_future_copy_is_kept(tmp_path: Path) -> None:
    _, copy = split_up(tmp_path)
    with opened(tmp_path):
        pass
    assert copy.is_dir()


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1}', "[1]", '{"version": 1, "topic": "t", "partition": "x"}'])
def test_an_invalid_move_file_means_an_incomplete_copy(tmp_path: Path, text: str) -> None:
    live, copy = split_up(tmp_path)
    (copy / NOTE).write_text(text)
    with opened(tmp_path):
        assert directories(tmp_path) == ["a/t-0"]
    assert live.is_dir()


# ---- failures of the disk --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
def test_a_move_that_fails_anywhere_leaves_the_log_in_one_place(tmp_path: Path, error: int, forever: bool) -> None:
    """Never two live copies, never none, nothing lost."""
    for nth in range(1, 400):
        path = tmp_path / str(nth)
        files = FailingFiles(nth, error, forever=forever)
        files.armed = False
        logs = opened(path, files=files)
        log = filled(logs, 12)
        log.flush()
        files.armed = True
        moved = outcome(lambda logs=logs, path=path: logs.move("t", 0, path / "b"))  # type: ignore[misc]
        files.armed = False
        if not logs.offline_directories:
            assert values(log) == list(range(12))
            assert log.append([(b"k", b"12")]).first_offset == 12
        abandon(logs)
        with opened(path) as logs:
            live = [place for place in directories(path) if place.endswith("t-0")]
            assert live == ["b/t-0"] if moved else len(live) == 1, f"nth={nth} {files.failed}"
            found = values(logs.log("t"))
            assert found[:12] == list(range(12)), f"nth={nth} {files.failed}"
        if not files.failed:
            assert moved
            assert nth > 20
            return
    raise AssertionError("no attempt succeeded")


def outcome(act: Callable[[], None]) -> bool:
    """Move the partition. Returns whether the move succeeded."""
    try:
        act()
    except (OSError, StorageOffline):
        return False
    return True


def test_a_reader_in_another_manager_finds_a_moved_partition(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        log = filled(logs)
        with klog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as reader:
            held = reader.log("t")
            assert values(held) == list(range(60))
            logs.move("t", 0, tmp_path / "b")
            log.append([(b"k", b"60")])
            assert values(reader.log("t")) == list(range(61))
            assert [int(record.value or b"") for record in reader.read("t")] == list(range(61))
            logs.delete_topic("t")
            with pytest.raises(UnknownTopicOrPartition):
                reader.log("t")


@pytest.mark.parametrize("change", ["move", "delete", "create again"])
def test_a_reader_loads_a_partition_that_goes_after_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    plain = TopicCatalog.entry

    def then_change(catalog: TopicCatalog, topic: str) -> Any:
        found = plain(catalog, topic)
        if catalog is reader._catalog and not changed:
            changed.append(change)
            if change == "move":
                logs.move("t", 0, tmp_path / "b")
            else:
                logs.delete_topic("t")
            if change == "create again":
                filled(logs, 5)
        return found

    changed: list[str] = []
    paths = [tmp_path / "a", tmp_path / "b"]
    with opened(tmp_path) as logs, klog.open(paths, read_only=True) as reader:
        filled(logs)
        monkeypatch.setattr(TopicCatalog, "entry", then_change)
        if change == "delete":
            with pytest.raises(UnknownTopicOrPartition, match="no topic 't'"):
                reader.log("t")
        else:
            assert values(reader.log("t")) == list(range(60 if change == "move" else 5))
        assert changed


def test_a_held_reader_of_a_moved_partition_stays_open_while_others_ask_for_it(tmp_path: Path) -> None:
    """Other threads may be inside its calls. It raises what a read of a deleted partition raises, also if the only file
    is still open."""
    with opened(tmp_path) as logs:
        filled(logs, 3)
        with klog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as reader:
            held = reader.log("t")
            begun = iter(held.read())
            next(begun)
            logs.move("t", 0, tmp_path / "b")
            logs.append("t", [(b"k", b"3")])
            for _ in range(2):
                for read in (held.read, held.count, partial(held.fetch, 0), lambda: next(held.tail(3))):
                    with pytest.raises(UnknownTopicOrPartition, match="t-0 is no longer in .*a: it was deleted"):
                        read()
                assert values(reader.log("t")) == list(range(4))
            assert [int(record.value or b"") for record in begun] == [1, 2]
            logs.move("t", 0, tmp_path / "a")
            held.refresh()
            assert values(held) == list(range(4))
        assert held.closed


def test_a_tail_beside_the_writer_goes_on_after_a_move(tmp_path: Path) -> None:
    """The move comes while it returns records, of which the later ones are in files that it has not opened."""
    with opened(tmp_path) as logs:
        filled(logs)
        with klog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as reader:
            tail = iter(reader.tail("t", "earliest", timeout=0))
            found = [next(tail).offset]
            logs.move("t", 0, tmp_path / "b")
            logs.append("t", [(b"k", b"60")])
            assert found + [record.offset for record in tail] == list(range(61))

            async def read() -> list[int]:
                found = []
                async for record in reader.tail("t", "earliest", timeout=0):
                    if not found:
                        logs.move("t", 0, tmp_path / "a")
                    found.append(record.offset)
                return found

            assert asyncio.run(read()) == list(range(61))


def test_a_tail_wakes_up_after_a_move(tmp_path: Path) -> None:
    with klog.open([tmp_path / "a", tmp_path / "b"], create=True) as logs:
        log = filled(logs)
        got: list[int] = []

        def follow() -> None:
            for record in log.tail(58, timeout=PATIENCE):
                got.append(int(record.value or b""))
                if len(got) == 4:
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        logs.move("t", 0, tmp_path / "b")
        log.append([(b"k", b"60")])
        logs.move("t", 0, tmp_path / "a")
        log.append([(b"k", b"61")])
        thread.join(PATIENCE)
        assert got == [58, 59, 60, 61]


def test_a_segment_that_became_active_again_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The .log is unchanged; the indexes have changed."""
    plain = moving.copy_file
    with opened(tmp_path) as logs:
        log = filled(logs)
        last = [segment for segment in log.segments if segment.size][-1]

        def copy_file(files: Any, source: str, target: str) -> int:
            size = plain(files, source, target)
            if source == last.path.replace(".log", ".index") and not target.endswith("seen"):
                Path(target).write_bytes(Path(target).read_bytes() + bytes(4096))  # as while it was active
                Path(source).write_bytes(Path(source).read_bytes() + bytes(8))
                monkeypatch.setattr(moving, "copy_file", plain)
            return size

        monkeypatch.setattr(moving, "copy_file", copy_file)
        whole = moving._catch_up

        def catch_up(*args: Any) -> None:
            whole(*args)
            path = Path(last.path.replace(".log", ".index"))
            path.write_bytes(path.read_bytes()[:-8])

        monkeypatch.setattr(moving, "_catch_up", catch_up)
        logs.move("t", 0, tmp_path / "b")
        assert values(log) == list(range(60))
    assert not klog.verify(tmp_path / "b").problems


class NoteOrder(CrashFiles):
    """Checks that a copy has its final name on disk before its note goes."""

    removed = 0

    def unlink(self, path: str) -> None:
        if path.endswith(NOTE) and os.path.exists(path):
            assert os.path.dirname(path) not in self._directories
            self.removed += 1
        super().unlink(path)


def test_a_copy_has_its_name_on_disk_before_its_note_goes(tmp_path: Path) -> None:
    """M3: without the note, a copy that a crash gives back its old name would be a broker's, and the partition gone."""
    live, copy = split_up(tmp_path)
    note(copy, ready=True, source=live.parent)
    live.rename(live.parent / f"t-0.{uuid.uuid4().hex}-delete")
    files = NoteOrder()
    files.keep(tmp_path)
    with opened(tmp_path, files=files) as logs:
        assert values(logs.log("t")) == list(range(60))
    assert files.removed == 1
