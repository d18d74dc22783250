"""The background cleaner: the logs that it cleans and those that it skips, under a manual clock."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import CorruptBatch, InvalidConfig, PolicyViolation, ReentrantCall
from klog.log.core import LogCore
from klog.log.directory import checkpoint, cleaner_offsets
from klog.log.retain import retention
from klog.log.state.cleaning_state import cleaning_by_hand, without_cleaning
from klog.manager.cleaning import FirstTimestamps, correct_checkpoints, survey
from klog.segment import Segment
from tests.manager.cleaned_logs import (
    BACKOFF_MS,
    NOW,
    checkpoints,
    dirty,
    first_dirty,
    is_clean,
    opened,
    pass_time,
    topic,
    values,
)
from tests.support.batches import marker, transactional
from tests.support.failing_files import FailingFiles
from tests.support.faulty_io import FaultyIo
from tests.support.rounds import retention_round

NEVER = {"min.cleanable.dirty.ratio": 1.0}


def test_dirty_logs_are_cleaned_until_none_is_left(tmp_path: Path) -> None:
    """After its start it cleans every eligible log in one wakeup. It keeps active segments and files that are in
    use."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        several = [topic(logs, f"t{n}") for n in range(3)]
        other = topic(logs, "kept", **{"cleanup.policy": "delete"})
        for log in (*several, other):
            dirty(log)
        before = values(other)
        clock.advance(BACKOFF_MS)
        assert not any(map(is_clean, several))  # not started
        logs.start()
        clock.advance(BACKOFF_MS - 1)
        assert not any(map(is_clean, several))
        clock.advance(1)
        for log in several:
            assert values(log) == [*((b"key-%d" % key, b"v-3") for key in range(5)), (b"active", b"x")]
            assert first_dirty(log) == 20
        assert values(other) == before
        dirty(several[0], value=b"w", rounds=8)
        pass_time(clock)
        assert values(several[0])[-6:-1] == [(b"key-%d" % key, b"w-7") for key in range(5)]
        assert is_clean(several[0])


def test_each_cleaning_logs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs, caplog.at_level("INFO", "klog.cleaner"):
        dirty(topic(logs, "t"))
        logs.start()
        pass_time(clock, 2)
        (line,) = [message for message in caplog.messages if message.startswith("event=log_cleaned ")]
        fields = dict(word.split("=", 1) for word in line.split())
        wanted = {"log": "t-0", "first_dirty": "0", "end": "20", "keys": "5", "records": "20", "records_left": "5"}
        assert {name: fields[name] for name in wanted} == wanted
        assert int(fields["left"]) < int(fields["bytes"]) == int(fields["indexed_bytes"])
        assert {"seconds", "bytes_per_second", "map_utilization"} <= set(fields)


def test_a_small_map_takes_several_rounds(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, {"log.cleaner.dedupe.buffer.size": 24 * 3}) as logs:
        log = topic(logs, "t", **{"min.cleanable.dirty.ratio": 0.0})
        dirty(log, rounds=3, keys=7)
        logs.start()
        pass_time(clock)
        assert is_clean(log)
        assert first_dirty(log) == 21


def test_starting_needs_memory_for_two_keys(tmp_path: Path) -> None:
    """slots x load factor <= 1 raises, for each thread; a reconfiguration to that is refused and changes nothing."""
    config = {"log.cleaner.dedupe.buffer.size": 24 * 5, "log.cleaner.threads": 4}
    with opened(tmp_path, ManualClock(NOW), config) as logs, pytest.raises(InvalidConfig, match="dedupe"):
        logs.start()
    with opened(tmp_path, ManualClock(NOW), {**config, "log.cleaner.threads": 2}) as logs:
        logs.start()
        with pytest.raises(InvalidConfig, match="two keys"):
            logs.alter_config({"log.cleaner.threads": 4})
        logs.alter_config({"log.cleaner.threads": 1})
        with pytest.raises(InvalidConfig, match="at least one"):
            logs.alter_config({"log.cleaner.threads": 0})
        assert logs.config.log_cleaner_threads == 1


def test_the_cleaner_can_be_disabled(tmp_path: Path) -> None:
    for number, config in enumerate(({"log.cleaner.enable": False}, {"log.cleaner.threads": 0})):
        clock = ManualClock(NOW)
        with opened(tmp_path / str(number), clock, config) as logs:
            log = topic(logs, "t")
            dirty(log)
            logs.start()
            pass_time(clock)
            assert not is_clean(log)
            assert "max-dirty-percent" not in logs.metrics()


# ---- which log -------------------------------------------------------------------------------------------------------


def shares(logs: klog.LogManager, percents: dict[str, int]) -> dict[str, klog.Log]:
    """Logs with the given share of a hundred batches dirty."""
    made = {}
    for name, percent in percents.items():
        log = made[name] = topic(logs, name, **{"min.cleanable.dirty.ratio": 0.1})
        for number in range(100):
            if number == 100 - percent:
                log.roll()
            log.append([(b"%03d" % number, b"v")])
        log.roll()
        cleaner_offsets.write(RealFiles(), str(Path(log.path).parent), (name, 0), 100 - percent)
    return made


def order(logs: klog.LogManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The logs that one wakeup of the background cleaner cleans, in order."""
    from klog.manager import cleaner_work

    taken: list[str] = []
    real = cleaner_work.clean_round

    def noted(log: klog.Log, *rest: Any, **more: Any) -> Any:
        taken.append(log.topic)
        return real(log, *rest, **more)

    monkeypatch.setattr(cleaner_work, "clean_round", noted)
    pass_time(clock)
    return taken


def test_the_dirtiest_log_is_cleaned_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM2: of logs with 20, 25 and 30 percent of dirty bytes, the one with 30 is cleaned."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        shares(logs, {"a": 20, "c": 30, "b": 25})
        logs.start()
        assert order(logs, clock, monkeypatch) == ["c", "b", "a"]


def test_one_survey_serves_many_cleanings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many logs, the eligible ones are cleaned one after the other, the dirtiest first, before all logs are
    inspected again."""
    from klog.manager import cleaner_work

    clock, looks = ManualClock(NOW), []
    real = cleaner_work.survey
    monkeypatch.setattr(cleaner_work, "survey", lambda *args: looks.append(len(args[0])) or real(*args))
    monkeypatch.setattr(cleaner_work, "_MANY", 2)
    with opened(tmp_path, clock) as logs:
        shares(logs, {"a": 20, "c": 30, "b": 25})
        logs.start()
        assert order(logs, clock, monkeypatch) == ["c", "b", "a"]
        assert len(looks) == 2
        dirty(logs.log("a"), rounds=9, value=b"w")
        assert order(logs, clock, monkeypatch)[:1] == ["a"]


def test_uncleanable_and_paused_logs_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM2: it chooses the next log; if there is none, it cleans nothing."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        made = shares(logs, {"a": 20, "c": 30, "b": 25})
        logs.start()
        made["c"]._core.cleaning.uncleanable = "for a test"
        made["b"]._core.cleaning.pause()
        assert order(logs, clock, monkeypatch) == ["a"]
        assert order(logs, clock, monkeypatch) == []
        made["b"]._core.cleaning.resume()
        assert order(logs, clock, monkeypatch) == ["b"]


def test_the_dirty_ratio_must_exceed_the_minimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        made = shares(logs, {"a": 25})
        logs.alter_topic("a", {"min.cleanable.dirty.ratio": 0.25})
        logs.start()
        assert order(logs, clock, monkeypatch) == []
        assert logs.metrics()["max-dirty-percent"] == {"": 25.0}
        logs.alter_topic("a", {"min.cleanable.dirty.ratio": 0.2499})
        assert order(logs, clock, monkeypatch) == ["a"]
        assert is_clean(made["a"])


def test_logs_without_a_known_config_are_skipped(tmp_path: Path) -> None:
    """A broker's topic, whose config klog does not know; once it is set, the topic is cleaned."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        dirty(topic(logs, "t"))
    (tmp_path / "klog-topics.json").unlink()
    with opened(tmp_path, clock, {"log.cleanup.policy": "compact"}) as logs:
        logs.start()
        pass_time(clock)
        assert not is_clean(logs.log("t"))
        logs.alter_topic("t", {"min.cleanable.dirty.ratio": 0.1})
        pass_time(clock)
        assert is_clean(logs.log("t"))


def test_a_log_whose_survey_fails_is_uncleanable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM1: it is reported with the reason; the others are cleaned."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        bad, good = (topic(logs, name, **{"max.compaction.lag.ms": 1000}) for name in ("bad", "good"))
        dirty(bad)
        dirty(good)
        logs.start()
        real = Segment.first_batch_timestamp.fget

        def broken(segment: Segment) -> int:
            if "bad-0" in segment.path:
                raise RuntimeError("unexpected")
            stamp: int = real(segment)
            return stamp

        monkeypatch.setattr(Segment, "first_batch_timestamp", property(broken))
        pass_time(clock)
        assert list(logs.uncleanable) == ["bad-0"]
        assert "unexpected" in logs.uncleanable["bad-0"]
        assert is_clean(good)
        assert not is_clean(bad)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def test_an_invalid_checkpoint_is_corrected(tmp_path: Path) -> None:
    """CM3, CM12: a checkpoint above the log end or below the log start is corrected, also for logs that are not dirty
    and not chosen; a valid one stays."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        made = {name: topic(logs, name, **NEVER) for name in ("beyond", "below", "inside")}
        for log in made.values():
            dirty(log)
        made["below"].maybe_increment_log_start_offset(15)
        for name, offset in (("beyond", 99), ("below", 10), ("inside", 7)):
            cleaner_offsets.write(RealFiles(), str(tmp_path), (name, 0), offset)
        logs.start()
        pass_time(clock)
        assert checkpoints(tmp_path) == {("beyond", 0): 0, ("below", 0): 15, ("inside", 0): 7}
        # A crash that lost this log start would bring records back that no cleaning has read, below the checkpoint.
        assert checkpoint.read_offsets(str(tmp_path / checkpoint.LOG_START)) == {("below", 0): 15}


def test_a_correction_does_not_count_what_a_truncation_has_replaced_as_clean(tmp_path: Path) -> None:
    """The log is truncated between the survey and the correction: a deleted key must stay deleted."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        log = topic(logs, "t")
        dirty(log)
        log.maybe_increment_log_start_offset(15)
        cleaner_offsets.write(RealFiles(), str(tmp_path), ("t", 0), 10)
        found = survey([log], FirstTimestamps(), NOW).candidates
        log.truncate_fully_and_start_at(3)
        log.append([(b"deleted", b"v")])
        log.append([(b"deleted", None)])
        dirty(log)
        correct_checkpoints(RealFiles(), found)
        for _ in range(2):
            log.compact(roll=True)
            log.append([(b"active", b"x")])
            clock.advance(2000)
        assert b"deleted" not in {key for key, value in values(log) if value is not None}


def test_nothing_is_cleanable_if_the_log_start_is_in_the_active_segment(tmp_path: Path) -> None:
    """CM4: this also holds if the checkpoint is in the active segment."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        for name in ("start", "checkpoint"):
            dirty(topic(logs, name, **{"min.cleanable.dirty.ratio": 0.0}))
        logs.log("start").maybe_increment_log_start_offset(21)
        cleaner_offsets.write(RealFiles(), str(tmp_path), ("checkpoint", 0), 20)
        logs.start()
        pass_time(clock)
        assert not is_clean(logs.log("checkpoint"))
        assert logs.metrics()["cleaner-recopy-percent"] == {"": 0.0}


def test_checkpoints_are_set_lowered_removed_and_moved(tmp_path: Path) -> None:
    """CM11: a checkpoint is set, replaced and removed, also twice. A truncation only lowers it. It moves to another
    directory with its log."""
    files, a, b = RealFiles(), tmp_path / "a", tmp_path / "b"
    for directory in (a, b):
        directory.mkdir()
    cleaner_offsets.write(files, str(a), ("t", 0), 10)
    cleaner_offsets.update(files, str(a), {("t", 0): 12, ("u", 1): 5})
    assert checkpoints(a) == {("t", 0): 12, ("u", 1): 5}
    cleaner_offsets.lower(files, str(a), ("t", 0), 20)
    assert checkpoints(a)["t", 0] == 12
    cleaner_offsets.lower(files, str(a), ("t", 0), 11)
    assert checkpoints(a)["t", 0] == 11
    cleaner_offsets.move(files, str(a), str(b), ("t", 0))
    assert checkpoints(b) == {("t", 0): 11}
    for _ in range(2):
        cleaner_offsets.forget(files, str(a), lambda key: key == ("t", 0))
    assert checkpoints(a) == {("u", 1): 5}
    cleaner_offsets.move(files, str(a), str(b), ("t", 0))  # no checkpoint to move
    assert checkpoints(b) == {}


def test_a_moved_log_keeps_its_checkpoint(tmp_path: Path) -> None:
    """CM11: the cleaner continues from it in the new directory."""
    clock = ManualClock(NOW)
    a, b = tmp_path / "a", tmp_path / "b"
    with klog.open([a, b], create=True, clock=clock) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact"}, directory=a)
        log = logs.log("t")
        dirty(log)
        logs.start()
        pass_time(clock)
        assert checkpoints(a) == {("t", 0): 20}
        logs.move("t", 0, b)
        assert checkpoints(a) == {}
        assert checkpoints(b) == {("t", 0): 20}
        dirty(log, value=b"w", rounds=9)
        pass_time(clock)
        assert is_clean(log)
        assert checkpoints(b)["t", 0] > 20


def test_a_failing_directory_affects_only_its_own_logs(tmp_path: Path) -> None:
    """CM11: logs of the other directory are cleaned and checkpointed as before."""
    clock = ManualClock(NOW)
    a, b = tmp_path / "a", tmp_path / "b"
    files = FailingFiles()
    logs = klog.open([a, b], create=True, clock=clock, files=files)
    for name, home in (("t", a), ("u", b)):
        logs.create_topic(name, config={"cleanup.policy": "compact"}, directory=home)
        dirty(logs.log(name))
    logs.start()
    files.under.append(str(a))
    with pytest.raises(OSError, match=str(a)):
        logs.log("t").flush()
    pass_time(clock)
    assert checkpoints(a) == {}
    assert checkpoints(b) == {("u", 0): 20}
    with pytest.raises(OSError, match=str(a)):
        logs.close()


# ---- how far ---------------------------------------------------------------------------------------------------------


def test_compaction_lags(tmp_path: Path) -> None:
    """CL43, CM8: with a ratio of 1 nothing is cleaned before max.compaction.lag.ms. Records younger than
    min.compaction.lag.ms are kept. Without these settings, the log is cleaned up to the active segment."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        late = topic(logs, "late", **NEVER, **{"max.compaction.lag.ms": 3_600_000})
        young = topic(logs, "young", **{"min.compaction.lag.ms": 3_600_000, "min.cleanable.dirty.ratio": 0.0})
        both = (late, young)
        for log in both:
            dirty(log)
        logs.start()
        clock.advance(1_800_000)
        assert not any(map(is_clean, both))
        for log in both:
            dirty(log, value=b"w")
        clock.advance(1_800_000 + BACKOFF_MS)
        assert is_clean(late)
        assert first_dirty(young) == 20  # only the first records
        assert not is_clean(young)
        clock.advance(1_800_000 + BACKOFF_MS)
        assert is_clean(young)


def test_first_timestamps_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read = ManualClock(NOW), []
    with opened(tmp_path, clock) as logs:
        log = topic(logs, "t", **NEVER, **{"max.compaction.lag.ms": 86_400_000})
        dirty(log)
        real = Segment.first_batch_timestamp.fget
        monkeypatch.setattr(
            Segment, "first_batch_timestamp", property(lambda segment: read.append(segment.path) or real(segment))
        )
        logs.start()
        pass_time(clock, 3)
        assert len(read) == 1
        dirty(log)
        pass_time(clock, 3)
        assert len(read) == 2  # the one closed since then
        log.truncate_to(10)
        dirty(log)
        pass_time(clock, 2)
        assert len(read) > 2


def test_cleaning_stops_at_an_open_transaction(tmp_path: Path) -> None:
    """CM9: a cleaning stops at the first offset of the open transaction. After the transaction is aborted, the high
    watermark is above it, and min.compaction.lag.ms have passed, everything below the active segment is cleaned."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        log = topic(logs, "t", **{"min.cleanable.dirty.ratio": 0.0, "min.compaction.lag.ms": 60_000})
        for sequence in range(2):
            log.append_batches(transactional(15, 0, sequence))
        log.roll()
        logs.start()
        clock.advance(600_000)
        assert first_dirty(log) is None
        log.update_high_watermark(2)
        log.append_batches(marker(15, 0, "abort"), origin="coordinator")
        log.roll()
        log.append([(b"k", b"v")])
        clock.advance(600_000)
        assert first_dirty(log) is None
        log.update_high_watermark(log.log_end_offset)
        clock.advance(600_000)
        assert first_dirty(log) == 3
        assert [record.offset for record in log.read(isolation="log_end")] == [3]


# ---- delete beside compact -------------------------------------------------------------------------------------------


def test_the_cleaner_deletes_segments_of_compacted_logs(tmp_path: Path) -> None:
    """CM5: expired segments of compact,delete logs are deleted, and segments below the log start of compact logs; none
    of an uncleanable log, or of one that another thread uses."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        made = {}
        for name in ("both", "compact", "given-up", "taken"):
            policy = "compact" if name == "compact" else "compact,delete"
            made[name] = topic(logs, name, **{"cleanup.policy": policy, "retention.ms": 60_000}, **NEVER)
            dirty(made[name])
        made["compact"].maybe_increment_log_start_offset(20)
        made["given-up"]._core.cleaning.uncleanable = "for a test"
        made["taken"]._core.cleaning.pause()
        logs.start()
        clock.advance(90_000)
        begins = {name: log.segments[0].base_offset for name, log in made.items()}
        assert begins == {"both": 21, "compact": 20, "given-up": 0, "taken": 0}


def test_compact_becomes_compact_and_delete(tmp_path: Path) -> None:
    """CL44: the old segments are deleted; the log starts where it ends, in one segment."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        log = topic(logs, "t", **{"retention.ms": 60_000})
        dirty(log)
        logs.start()
        clock.advance(90_000)
        assert is_clean(log)
        assert log.log_start_offset == 0
        logs.alter_topic("t", {"cleanup.policy": "compact,delete"})
        pass_time(clock)
        assert log.log_start_offset == log.log_end_offset
        assert len(log.segments) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_cleaning_with_every_codec(tmp_path: Path, codec: str) -> None:
    """CL44: the remaining records equal those of a dict."""
    clock, model = ManualClock(NOW), {}
    with opened(tmp_path, clock) as logs:
        log = topic(logs, "t")
        for number in range(120):
            pairs = [(b"%d" % (number * step % 17), b"%d" % number * 5) for step in range(1, 5)]
            model.update(pairs)
            log.append(pairs, compression=codec)
            if number % 40 == 39:
                log.roll()
        logs.start()
        pass_time(clock, 2)
        assert dict(values(log)) == model
        assert len(values(log)) == len(model)


def test_retention_and_cleaning_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM6: a log under retention is not chosen, even if its policy has become compact. Retention skips a log until its
    cleaning ends."""
    clock, seen = ManualClock(NOW), []
    with opened(tmp_path, clock) as logs:
        log = topic(logs, "t", **{"cleanup.policy": "delete", "retention.ms": 1000})
        dirty(log)
        clock.advance(60_000)

        def meanwhile(log: LogCore) -> int:
            logs.alter_topic("t", {"cleanup.policy": "compact"})
            seen.append((log.cleaning.state, log.cleaning.try_begin()))
            return 0

        monkeypatch.setattr(retention, "apply", meanwhile)
        retention_round(logs)
        assert seen == [("paused", False)]
        logs.alter_topic("t", {"cleanup.policy": "delete"})
        with cleaning_by_hand(log._core):
            retention_round(logs)
        assert len(seen) == 1
        retention_round(logs)
        assert len(seen) == 2


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def flip(log: klog.Log) -> None:
    """Flip a bit of a value in the first segment."""
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def test_damage_makes_a_log_uncleanable(tmp_path: Path) -> None:
    """CL42: two of three logs become uncleanable. Each is reported with file, position and offset, is in the metrics,
    and is not retried. After it is deleted, or compacted by compact(), it no longer counts."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        bad, worse, good = (topic(logs, name) for name in ("bad", "worse", "good"))
        for log in (bad, worse, good):
            dirty(log)
        sound = Path(bad.segments[0].path).read_bytes()
        flip(bad)
        flip(worse)
        logs.start()
        pass_time(clock)
        assert is_clean(good)
        assert sorted(logs.uncleanable) == ["bad-0", "worse-0"]
        reason = logs.uncleanable["bad-0"]
        assert bad.segments[0].path in reason
        assert "position 0" in reason or "byte 0" in reason
        metrics = logs.metrics()
        assert metrics["uncleanable-partitions-count"] == {str(tmp_path): 2}
        assert metrics["uncleanable-bytes"][str(tmp_path)] == bad.segments[0].size + worse.segments[0].size
        logs.delete_topic("worse")
        assert logs.metrics()["uncleanable-partitions-count"] == {str(tmp_path): 1}
        with pytest.raises(CorruptBatch):
            bad.compact()
        Path(bad.segments[0].path).write_bytes(sound)
        pass_time(clock)
        assert not is_clean(bad)
        bad.compact()
        assert is_clean(bad)
        assert logs.uncleanable == {}
        assert logs.metrics()["uncleanable-partitions-count"] == {str(tmp_path): 0}


def test_a_full_disk_postpones_a_cleaning(tmp_path: Path) -> None:
    """F17: the log stays unchanged, and is cleaned after there is free space again."""
    clock = ManualClock(NOW)
    with FaultyIo() as io, opened(tmp_path, clock, files=RealFiles(io.table)) as logs:
        log = topic(logs, "t")
        dirty(log)
        before = values(log)
        logs.start()
        io.rule("pwrite", error=errno.ENOSPC)
        pass_time(clock)
        assert values(log) == before
        assert logs.offline_directories == {}
        assert logs.uncleanable == {}
        assert not list(Path(log.path).glob("*.cleaned"))
        io.heal()
        log.append([(b"key-1", b"new")])
        pass_time(clock)
        assert is_clean(log)


def test_a_broken_disk_takes_the_directory_offline(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with FaultyIo() as io:
        logs = opened(tmp_path, clock, files=RealFiles(io.table))
        log = topic(logs, "t")
        dirty(log)
        logs.start()
        io.rule("fdatasync", error=errno.EIO)
        io.rule("fsync", error=errno.EIO)
        pass_time(clock)
        assert list(logs.offline_directories) == [str(tmp_path)]
        assert log.offline is not None
        io.heal()
        with pytest.raises(OSError, match="Input/output"):
            logs.close()


@pytest.mark.parametrize("whole", [False, True])
def test_a_new_policy_ends_compact(tmp_path: Path, whole: bool) -> None:
    """alter_topic or alter_config from another thread ends the current round; no further round starts."""
    with opened(tmp_path, ManualClock(NOW)) as logs:
        log = topic(logs, "t")
        if whole:
            logs.alter_topic("t", {"cleanup.policy": None})
            logs.alter_config({"log.cleanup.policy": "compact"})
        dirty(log)
        before, threads, known = values(log), [], []

        def alter() -> None:
            if whole:
                logs.alter_config({"log.cleanup.policy": "delete"})
            else:
                logs.alter_topic("t", {"cleanup.policy": "delete"})
            known.append(values(log))

        def progress(event: klog.Event) -> None:
            if not threads:
                threads.append(threading.Thread(target=alter, daemon=True))
                threads[0].start()
                while log._core.cleaning.state != "aborted":
                    threads[0].join(0.01)

        with pytest.raises(PolicyViolation):
            log.compact(progress=progress)
        threads[0].join()
        assert known == [before] and values(log) == before


def test_a_new_policy_from_the_same_thread_ends_compact(tmp_path: Path) -> None:
    with opened(tmp_path, ManualClock(NOW)) as logs:
        log = topic(logs, "t")
        dirty(log)
        before = values(log)
        with pytest.raises(PolicyViolation):
            log.compact(progress=lambda _: logs.alter_topic("t", {"cleanup.policy": "delete"}) and None)
        assert values(log) == before


def test_compact_raises_while_the_same_thread_has_paused_cleaning(tmp_path: Path) -> None:
    """Y1: a signal handler may make such a call; it has no effect, not even a roll."""
    with opened(tmp_path, ManualClock(NOW)) as logs:
        log = topic(logs, "t")
        dirty(log)
        segments = len(log.segments)
        with without_cleaning(log._core):
            with pytest.raises(ReentrantCall):
                log.compact(roll=True)
            with pytest.raises(ReentrantCall):
                log.purge_key(b"key-1", roll=True)
            assert len(log.segments) == segments
            assert log.compact(dry_run=True).rounds == 1
        assert log.compact().rounds == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_an_unreadable_checkpoint_affects_only_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The log goes offline if the disk is broken; the cleaning is postponed if a resource is exhausted. The other logs
    are cleaned."""
    clock, read, fails = ManualClock(NOW), cleaner_offsets.read, [True]
    with klog.open([tmp_path / "a", tmp_path / "b"], create=True, clock=clock) as logs:
        there = [topic(logs, name) for name in "tuvw"]
        bad = str(tmp_path / "a")
        mine = [log for log in there if Path(log.path).parent == Path(bad)]
        others = [log for log in there if log not in mine]
        assert mine and others
        for log in there:
            dirty(log)

        def reading(log_dir: str) -> dict[tuple[str, int], int]:
            if fails and log_dir == bad:
                raise OSError(number, "cannot be read", log_dir)
            return read(log_dir)

        monkeypatch.setattr(cleaner_offsets, "read", reading)
        logs.start()
        pass_time(clock)
        assert all(map(is_clean, others))
        assert logs.uncleanable == {}
        fails.clear()
        pass_time(clock, 2)
        assert set(logs.offline_directories) == ({bad} if number == errno.EIO else set())
        if number == errno.EIO:
            with pytest.raises(OSError, match="cannot be read"):
                logs.close()
        else:
            assert all(map(is_clean, mine))


@pytest.mark.parametrize("whole", [False, True])
def test_a_repaired_log_is_cleanable_again(tmp_path: Path, whole: bool) -> None:
    """This holds after the damage is truncated, with all records or by a call of compact(); then there may be nothing
    left to clean."""
    with opened(tmp_path, ManualClock(NOW)) as logs:
        log = topic(logs, "t")
        dirty(log)
        log._core.cleaning.uncleanable = "damage"
        if whole:
            log.truncate_fully_and_start_at(7)
        else:
            log.truncate_to(5)
            assert log.compact(dry_run=True).rounds == 0
            assert logs.uncleanable == {"t-0": "damage"}
            assert log.compact().rounds == 0
        assert logs.uncleanable == {}


def test_a_rate_of_zero_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rate = "log.cleaner.io.max.bytes.per.second"
    with opened(tmp_path, ManualClock(NOW), {rate: 0}) as logs:
        logs.start()
        assert [text.split()[0] for text in caplog.messages] == ["event=cleaner_paused"]
        logs.alter_config({rate: 1000})
        assert len(caplog.messages) == 1
        logs.alter_config({rate: 0})
        assert len(caplog.messages) == 2


def test_a_truncation_lowers_the_checkpoint_of_the_cleaner(tmp_path: Path) -> None:
    """CM: records that are appended from there on are not clean."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact"})
        log = logs.log("t")
        for number in range(6):
            log.append([(b"k%d" % number, b"v")])
        log.compact(roll=True)
        assert cleaner_offsets.read(str(tmp_path)) == {("t", 0): 6}
        log.truncate_to(2)
        assert cleaner_offsets.read(str(tmp_path)) == {("t", 0): 2}
