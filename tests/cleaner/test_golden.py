"""For every golden log, klog's cleaner has the same result as Kafka's cleaner."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.cleaner import Cleanable, KeyMap, RoundStats, clean_round, cleanable, dirt
from klog.clock import ManualClock
from klog.errors import CorruptBatch
from klog.record import decode
from tests.support import golden

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_FIELDS = (
    "base_offset", "last_offset", "count", "is_control", "producer_id", "base_sequence", "delete_horizon_ms",
    "producer_epoch", "is_transactional", "codec", "max_timestamp", "timestamp_type", "leader_epoch", "segment",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_cleaner_cases(tmp_path_factory.mktemp("cleaner"))


class Cleaning:
    """A log and Kafka's rounds over it."""

    def __init__(self, case: golden.LoaderCase, directory: Path) -> None:
        self.config = case.config
        self.clock = ManualClock(self.config["rounds"][0]["now_ms"])
        for base, modified in self.config.get("segment_mtime_ms", {}).items():
            path = directory / f"{int(base):020d}.log"
            os.utime(path, ns=(modified * 1_000_000, modified * 1_000_000))
        self.log = klog.Log.open(directory, config=self.config["config"], clean_shutdown=True, clock=self.clock)
        if self.config["high_watermark"] is not None:
            self.log.update_high_watermark(self.config["high_watermark"])
        self.rounds: list[RoundStats] = []

    def round(self, first_dirty: int | None) -> RoundStats:
        log, now = self.log, self.clock.wall_ms()
        log._core.producers.expire(now, self.config["producer_id_expiration_ms"])
        range_ = cleanable(
            log.segments,
            first_dirty,
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset,
            log.config.min_compaction_lag_ms,
            now,
        )
        keys = KeyMap(24 * self.config["offset_map_slots"], self.config["dedupe_buffer_load_factor"])
        stats = clean_round(log._core, dirt(log.segments, range_), keys, now)
        self.rounds.append(stats)
        return stats

    def all_rounds(self) -> None:
        end: int | None = None
        for planned in self.config["rounds"]:
            self.clock.advance(planned["now_ms"] - self.clock.wall_ms())
            first = end if planned["first_dirty_offset"] == "previous" else planned["first_dirty_offset"]
            while True:
                stats = self.round(first)
                end = first = stats.end
                if not self.config["repeat_until_clean"] or stats.end >= self.log.segments[-1].base_offset:
                    break


def batches_of(log: klog.Log) -> list[dict[str, Any]]:
    found = []
    for segment in log.segments:
        data = Path(segment.path).read_bytes()[: segment.size]
        for batch in decode(data, path=segment.path):
            found.append(
                {
                    "base_offset": batch.base_offset,
                    "last_offset": batch.last_offset,
                    "count": batch.count,
                    "is_control": batch.is_control,
                    "producer_id": batch.producer_id,
                    "base_sequence": batch.base_sequence,
                    "delete_horizon_ms": batch.delete_horizon_ms,
                    "producer_epoch": batch.producer_epoch,
                    "is_transactional": batch.is_transactional,
                    "codec": batch.compression or "none",
                    "max_timestamp": batch.max_timestamp,
                    "timestamp_type": {0: "create", 1: "append"}[int(batch.timestamp_type)],
                    "leader_epoch": batch.leader_epoch,
                    "segment": segment.base_offset,
                }
            )
    return found


def sha256(path: str, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()[:size]).hexdigest()


def check_segments(log: klog.Log, wanted: list[Mapping[str, Any]], *, same_bytes: bool) -> None:
    assert [segment.base_offset for segment in log.segments] == [segment["base_offset"] for segment in wanted]
    if not same_bytes:
        return
    for segment, expected in zip(log.segments, wanted, strict=True):
        assert (segment.size, sha256(segment.path, segment.size)) == (expected["size"], expected["sha256"])
        index = segment.index
        assert [list(index.entry(i)) for i in range(index.entries)] == expected["offset_index"]
        assert [list(index.time_entry(i)) for i in range(index.time_entries)] == expected["time_index"]


@pytest.mark.parametrize("name", [name for name in golden.cleaner_names() if name != "flipped-bit"])
def test_cleaning_leaves_what_kafka_leaves(name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case = cases[name]
    verdict = case.verdict
    cleaning = Cleaning(case, case.copy(tmp_path))
    with cleaning.log as log:
        cleaning.all_rounds()
        assert [stats.first_dirty for stats in cleaning.rounds] == [r["first_dirty_offset"] for r in verdict["rounds"]]
        assert [stats.end for stats in cleaning.rounds] == [r["first_dirty_offset_after"] for r in verdict["rounds"]]
        assert [stats.keys for stats in cleaning.rounds] == [r["offset_map_entries"] for r in verdict["rounds"]]
        found = batches_of(log)
        assert found == [{field: batch[field] for field in BATCH_FIELDS} for batch in verdict["batches"]]
        check_segments(log, verdict["segments"], same_bytes={batch["codec"] for batch in found} <= {"none"})
        got = [golden.record_tuple(record) for record in log.read(include_control=True, isolation="log_end")]
        assert got == case.records
        aborted = [tuple(entry.values()) for entry in verdict["aborted"]]
        assert [tuple(entry) for segment in log.segments for entry in segment.txn_index.entries] == aborted
        assert (log.log_start_offset, log.log_end_offset) == (verdict["log_start_offset"], verdict["log_end_offset"])
        check_producers(log, verdict["producers"])
        cleaning.clock.advance(log.config.file_delete_delay_ms)
        log._core.options.scheduler.run_due()
    directory = Path(log.path)
    assert sorted(path.name for path in directory.iterdir()) == sorted(verdict["files_after"])
    assert [problem for problem in klog.verify(directory).problems if problem.kind != "checkpoint"] == []
    check_reopened(cleaning, case)


def check_producers(log: klog.Log, wanted: list[Mapping[str, Any]]) -> None:
    found = {pid: (s.epoch, s.last_sequence, s.last_offset) for pid, s in log.producers.items()}
    assert found == {p["producer_id"]: (p["epoch"], p["last_sequence"], p["last_offset"]) for p in wanted}


def check_reopened(cleaning: Cleaning, case: golden.LoaderCase) -> None:
    """Check the log again after an unclean stop, with all caches rebuilt from the files."""
    config = cleaning.config["config"]
    with klog.Log.open(cleaning.log.path, config=config, clean_shutdown=False, clock=cleaning.clock) as log:
        assert log.recovery.bytes_truncated == 0
        got = [golden.record_tuple(record) for record in log.read(include_control=True, isolation="log_end")]
        assert got == case.records
        assert log.log_end_offset == case.verdict["log_end_offset"]


@pytest.mark.parametrize("name", ["duplicates", "transactions-marker-life", "everything-map-full", "second-cleaning"])
def test_each_round_matches_kafkas_round(name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case = cases[name]
    cleaning = Cleaning(case, case.copy(tmp_path))
    planned = iter(case.verdict["rounds"])
    plain = name != "second-cleaning"
    with cleaning.log as log:
        whole = cleaning.round

        def round_and_check(first_dirty: int | None) -> RoundStats:
            stats, expected = whole(first_dirty), next(planned)
            if "segments" in expected:
                check_segments(log, expected["segments"], same_bytes=plain and name != "everything-map-full")
            return stats

        cleaning.round = round_and_check  # type: ignore[method-assign]
        cleaning.all_rounds()
    assert next(planned, None) is None


def test_a_damaged_batch_stops_the_cleaning_and_is_kept(cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    """Kafka copies the batch or writes a new checksum that matches; klog raises."""
    case = cases["flipped-bit"]
    directory = case.copy(tmp_path)
    damage = {(p.path, p.position) for p in klog.verify(directory).problems if p.kind == "crc"}
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    cleaning = Cleaning(case, directory)
    with cleaning.log, pytest.raises(CorruptBatch) as caught:
        cleaning.all_rounds()
    assert (caught.value.path, caught.value.position) in damage
    assert caught.value.kind == "crc"
    assert {path.name: path.read_bytes() for path in directory.glob("*.log*")} == before


def test_the_cleanable_range_is_that_of_kafkas_manager(cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    for name in ("min-compaction-lag", "transactions-open", "high-watermark", "active-not-rolled"):
        case = cases[name]
        (tmp_path / name).mkdir()
        cleaning = Cleaning(case, case.copy(tmp_path / name))
        with cleaning.log as log:
            expected = case.verdict["rounds"][0]
            range_: Cleanable = cleanable(
                log.segments, None, log.log_start_offset, log.log_end_offset, log.last_stable_offset,
                log.config.min_compaction_lag_ms, cleaning.clock.wall_ms(),
            )  # fmt: skip
            found = dirt(log.segments, range_)
            assert (found.first_uncleanable, found.clean_bytes, found.cleanable_bytes) == (
                expected["first_uncleanable_offset"], expected["clean_bytes"], expected["cleanable_bytes"],
            )  # fmt: skip
