"""Kafka's own loader opens klog's directories, after a clean close and after a crash, and agrees with klog."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from tests.interop.kafka import KafkaClasses
from tests.interop.writers import KILLED_SETTINGS, START_MS, Written, run_until_killed
from tests.support import golden
from tests.support.batches import NOW, marker, produced, transactional

pytestmark = [pytest.mark.java, pytest.mark.deep]

# Topic settings that only klog reads, or that Kafka takes from the broker.
NOT_FOR_KAFKA = {"retention.ms"}


def queries(written: Written, topic: str) -> list[int]:
    """Timestamps at, just before and just after records, and outside all of them. Kafka reserves negative ones."""
    times = sorted({record.timestamp for record in written.topics[topic] if record.timestamp is not None})
    chosen = times[:: max(1, len(times) // 25)]
    around = [time + step for time in chosen for step in (-1, 0, 1) if time + step >= 0]
    return [0, START_MS - 1, *around, written.now_ms + 10**9]


def copy_of(partition: Path, into: Path) -> Path:
    return Path(shutil.copytree(partition, into / partition.name))


def compare(answer: Any, log: klog.Log, where: str, times: list[int]) -> list[str]:
    """Compare Kafka's view of its copy with klog's view of its own."""
    differences = golden.Differences(where)
    equal = differences.equal
    equal("log_start_offset", answer["log_start_offset"], log.log_start_offset)
    equal("log_end_offset", answer["log_end_offset"], log.log_end_offset)
    got = [(item["base_offset"], item["size"]) for item in answer["segments"]]
    equal("segments", got, [(segment.base_offset, segment.size) for segment in log.segments])
    for item, segment in zip(answer["segments"], log.segments, strict=False):
        if item["size"]:  # without a record Kafka uses the file's modification time
            equal(f"max_timestamp of {item['base_offset']}", item["max_timestamp"], segment.max_timestamp)
    equal("leader_epochs", [tuple(item) for item in answer["leader_epochs"]], [tuple(it) for it in log.leader_epochs])
    equal("producers", golden.expected_producers(answer["producers"]), golden.producer_tuples(log))
    equal("aborted", [tuple(item) for item in answer["aborted"]], [])
    equal("topic_id", answer["topic_id"], golden.topic_id_text(log.topic_id))
    mine = []
    for time in times:
        found = log.offset_for_timestamp(time)
        mine.append([] if found is None else [found.timestamp, found.offset])
    differences.equal_lists("timestamps", answer["timestamps"], mine)
    got_records = [golden.golden_record(line) for line in answer["records"]]
    differences.equal_lists("records", got_records, [golden.record_tuple(record) for record in log.read()])
    return [f"{where}: {text}" for text in differences.found]


def stored_indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in {".index", ".timeindex"}}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_loads_a_log_closed_by_klog(
    kafka_classes: KafkaClasses, written: dict[str, Written], clean: bool, tmp_path: Path
) -> None:
    found: list[str] = []
    for name, directory in written.items():
        for topic in directory.topics:
            where = f"{name}/{topic}"
            config = {key: value for key, value in directory.config[topic].items() if key not in NOT_FOR_KAFKA}
            times = queries(directory, topic)
            theirs = copy_of(directory.partition(topic), tmp_path / "kafka" / name)
            mine = copy_of(directory.partition(topic), tmp_path / "klog" / name)
            answer = kafka_classes.load(
                theirs,
                clean=clean,
                now_ms=directory.now_ms,
                recovery_point=answer_end(directory, topic) if clean else 0,
                config=config,
                timestamps=times,
            )
            log = klog.Log.open(
                mine,
                config=config,
                recovery="kafka",
                clean_shutdown=clean,
                recovery_point=answer_end(directory, topic) if clean else 0,
                clock=ManualClock(directory.now_ms),
            )
            try:
                assert log.log_end_offset == answer_end(directory, topic), where
                found += compare(answer, log, where, times)
            finally:
                log.close()
            # Both have closed their copy: both kept (clean) or rebuilt (unclean) the sparse indexes.
            if stored_indexes(mine) != stored_indexes(theirs):
                odd = sorted(
                    file
                    for file in stored_indexes(mine).keys() | stored_indexes(theirs).keys()
                    if stored_indexes(mine).get(file) != stored_indexes(theirs).get(file)
                )
                found.append(f"{where}: index files differ: {odd}")
    assert not found, "\n".join(found)


def answer_end(written: Written, topic: str) -> int:
    return len(written.topics[topic])


def test_klog_continues_after_kafka(kafka_classes: KafkaClasses, written: dict[str, Written], tmp_path: Path) -> None:
    """Kafka loads and closes the directory, klog opens that, appends and closes, Kafka loads it again."""
    directory = written["segments"]
    for topic in ("by-size", "every-batch", "index-full"):
        config = {key: value for key, value in directory.config[topic].items() if key not in NOT_FOR_KAFKA}
        partition = copy_of(directory.partition(topic), tmp_path)
        end = answer_end(directory, topic)
        kafka_classes.load(partition, clean=True, now_ms=directory.now_ms, recovery_point=end, config=config)
        clock = ManualClock(directory.now_ms)
        log = klog.Log.open(partition, config=config, clean_shutdown=True, recovery_point=end, clock=clock)
        try:
            info = log.append([(b"after", b"kafka", directory.now_ms)] * 3, compression="lz4")
        finally:
            log.close()
        assert (info.first_offset, info.last_offset) == (end, end + 2)
        answer = kafka_classes.load(partition, clean=True, now_ms=directory.now_ms, recovery_point=end, config=config)
        assert answer["log_end_offset"] == end + 3
        tail = [golden.golden_record(line) for line in answer["records"][-3:]]
        assert [(record.offset, record.key, record.value) for record in tail] == [
            (end + index, b"after", b"kafka") for index in range(3)
        ]


def test_kafka_and_klog_recover_the_same_from_a_killed_writer(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    """The untouched files after SIGKILL: untrimmed indexes, no clean-shutdown file."""
    acknowledged = run_until_killed(tmp_path / "live", after_appends=60)
    theirs = copy_of(tmp_path / "live" / "killed-0", tmp_path / "kafka")
    mine = copy_of(tmp_path / "live" / "killed-0", tmp_path / "klog")
    config = {key: value for key, value in KILLED_SETTINGS.items() if key not in NOT_FOR_KAFKA}
    answer = kafka_classes.load(theirs, clean=False, now_ms=START_MS, config=config)
    assert answer["log_end_offset"] > acknowledged
    log = klog.Log.open(
        mine, config=config, recovery="kafka", clean_shutdown=False, recovery_point=0, clock=ManualClock(START_MS)
    )
    try:
        found = compare(answer, log, "killed", [])
    finally:
        log.close()
    assert not found, "\n".join(found)
    assert stored_indexes(mine) == stored_indexes(theirs)


def with_producers(path: Path, seed: int) -> list[int]:
    """A log of several segments, epochs, producers and transactions; returns base offsets and the log end."""
    pick, sequences, begun = random.Random(seed), dict.fromkeys((1, 2, 7, 8, 9), 0), set()
    path.parent.mkdir(parents=True)
    with klog.Log.open(path, clock=ManualClock(NOW), config={"segment.bytes": 500}) as log:
        for number in range(30):
            pid = pick.choice(list(sequences))
            where = {"base_offset": log.log_end_offset, "leader_epoch": number // 8}
            if pid in begun and pick.random() < 0.4:
                begun.discard(pid)
                data = marker(pid, 0, pick.choice(("commit", "abort")), **where)
            else:
                data = (produced if pid < 3 else transactional)(pid, 0, sequences[pid], 2, **where)
                sequences[pid] += 2
                begun |= {pid} - {1, 2}
            log.append_batches(data, origin="replication")
        return [*(segment.base_offset for segment in log.segments), log.log_end_offset]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("snapshots", [True, False])
def test_epochs_and_producers_after_any_log_start(
    kafka_classes: KafkaClasses, tmp_path: Path, snapshots: bool, seed: int
) -> None:
    """For every log start, recovery point and set of snapshots klog has the same epochs and producers as Kafka.

    Two exceptions (docs/deviations.md): without any snapshot after a clean stop Kafka has no producer, and Kafka drops
    the epoch of a log without records if its checkpoint has done so already.
    """
    source = tmp_path / "source" / "t-0"
    *bases, end = with_producers(source, seed)
    found: list[str] = []
    for start in range(0, end + 1, 3):
        for clean, point in ((True, end), (False, 0), (False, bases[2]), (False, end)):
            where = f"start={start} clean={clean} recovery_point={point}"
            copies = [copy_of(source, tmp_path / side / where) for side in ("kafka", "klog")]
            for path in (path for copy in copies for path in copy.glob("*.snapshot")):
                if not snapshots or (not clean and int(path.stem) == end):
                    path.unlink()
            answer = kafka_classes.load(
                copies[0], clean=clean, now_ms=NOW, recovery_point=point, log_start_offset=start
            )
            with klog.Log.open(
                copies[1],
                clock=ManualClock(NOW),
                clean_shutdown=clean,
                recovery_point=point,
                log_start_offset=start,
                recovery="kafka",
            ) as log:
                differences = golden.Differences(where)
                differences.equal("end", log.log_end_offset, answer["log_end_offset"])
                differences.equal("epochs", [list(item) for item in log.leader_epochs], answer["leader_epochs"])
                if snapshots or not clean:
                    differences.equal(
                        "producers", golden.producer_tuples(log), golden.expected_producers(answer["producers"])
                    )
                found += [f"{where}: {text}" for text in differences.found]
    assert not found, "\n".join(found)
