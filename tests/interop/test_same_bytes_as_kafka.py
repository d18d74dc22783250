"""Kafka, given klog's batches one after the other, writes the same directory: same names, same bytes.

This is the strictest test by Kafka of segment rolls, sparse index entries, the closing time index entry, trimmed sizes,
snapshots and the epoch file at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from tests.interop.kafka import KafkaClasses
from tests.interop.writers import Written
from tests.support import golden

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
