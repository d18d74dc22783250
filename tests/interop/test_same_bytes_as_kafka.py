"""Kafka, given klog's batches one after the other, writes the same directory: same names, same bytes.

This is the strictest test by Kafka of segment rolls, sparse index entries, the closing time index entry, trimmed sizes,
snapshots and the epoch file at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from tests.interop.kafka import KafkaClasses
from tests.interop.writers import Written
from tests.support import golden
from tests.support.batches import NOW
from tests.support.rare_batches import rare_batches

pytestmark = [pytest.mark.java, pytest.mark.deep]

# Writers whose rolls do not depend on how many batches one append call carried, and that never reopened (a reopened
# segment counts its index interval from 0 again).
WRITERS = ("codecs", "levels", "segments", "append_time")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("name", WRITERS)
def test_same_files(name: str, kafka_classes: KafkaClasses, written: dict[str, Written], tmp_path: Path) -> None:
    directory = written[name]
    differences = golden.Differences(name)
    with klog.open(directory.directory, read_only=True) as logs:
        topic_ids = {topic: golden.topic_id_text(logs.log(topic).topic_id) for topic in directory.topics}
    for topic in directory.topics:
        mine = contents(directory.partition(topic))
        theirs = tmp_path / f"{topic}-0"
        config = {key: value for key, value in directory.config[topic].items() if key != "retention.ms"}
        logs_in_order = sorted(directory.partition(topic).glob("*.log"))
        batches = kafka_classes.append(
            theirs, logs_in_order, now_ms=directory.now_ms, config=config, topic_id=topic_ids[topic]
        )
        assert batches > 0
        kafkas = contents(theirs)
        differences.equal_lists(f"{topic} names", sorted(mine), sorted(kafkas))
        for file in sorted(mine.keys() & kafkas.keys()):
            if mine[file] != kafkas[file]:
                differences.equal(
                    f"{topic} {file} ({len(mine[file])}, {len(kafkas[file])} bytes)", mine[file], kafkas[file]
                )
    differences.report()


@pytest.mark.parametrize("segment_bytes", [2000, 100_000])
def test_same_files_of_rare_batches(kafka_classes: KafkaClasses, segment_bytes: int, tmp_path: Path) -> None:
    """klog's own klog-gaps aside."""
    differences = golden.Differences("rare batches")
    for seed in range(100):
        config = {
            "internal.segment.bytes": segment_bytes,
            "segment.index.bytes": 1000,
            "index.interval.bytes": (1, 100, 4096)[seed % 3],
            "segment.ms": 10**6 if seed % 4 == 0 else 2**63 - 1,
        }
        mine, theirs, batches = tmp_path / f"{seed}-0", tmp_path / f"kafka-{seed}-0", tmp_path / f"{seed}.log"
        batches.write_bytes(b"".join(rare_batches(seed)))
        with klog.Log.open(mine, config={**config, "retention.ms": -1}, clock=ManualClock(NOW)) as log:
            topic_id = golden.topic_id_text(log.topic_id)
            for data in rare_batches(seed):
                log.append_batches(data, origin="replication")
        kafka_classes.append(theirs, [batches], now_ms=NOW, config=config, topic_id=topic_id)
        got, expected = contents(mine), contents(theirs)
        got.pop("klog-gaps", None)
        differences.equal_lists(f"{seed} names", sorted(got), sorted(expected))
        differences.equal(f"{seed} files", [name for name in got if got[name] != expected.get(name)], [])
    differences.report()
