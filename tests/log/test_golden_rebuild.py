"""klog appends the records of Kafka's uncompressed logs, and writes the same files byte for byte: batches, indexes,
snapshots, epochs.

Each stored batch is one append of its records, with the topic's configuration. Compressed batches are left to the
interop tests: two compressors of one format need not produce the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog import Record
from klog.clock import ManualClock
from klog.record import decode
from tests.support import golden

START_MS = 1_700_000_000_000
UNCOMPRESSED = [
    partition
    for partition in golden.all_partitions()
    if partition.case in {"plain", "segments"}
    and partition.records
    and set(partition.codecs) == {"none"}
    and {record.producer_id for record in partition.records} == {-1}
]


@pytest.mark.parametrize("partition", UNCOMPRESSED, ids=[partition.id for partition in UNCOMPRESSED])
def test_rebuilt_byte_for_byte(partition: golden.Partition, tmp_path: Path) -> None:
    again = tmp_path / partition.name
    config = {**partition.entry["config"], "message.timestamp.after.max.ms": 2**63 - 1}
    with klog.open(tmp_path, create=True, clock=ManualClock(START_MS)) as logs:
        logs.create_topic(partition.topic, config=config, topic_id=partition.topic_id)
        log = logs.log(partition.topic)
        for path in sorted(partition.directory.glob("*.log")):
            for batch in decode(path.read_bytes(), path=str(path)):
                log.append(
                    [Record(key=it.key, value=it.value, timestamp=it.timestamp, headers=it.headers) for it in batch]
                )
    theirs = {path.name: path.read_bytes() for path in partition.directory.iterdir()}
    mine = {path.name: path.read_bytes() for path in again.iterdir()}
    differences = golden.Differences(partition.id)
    differences.equal_lists("names", sorted(mine), sorted(theirs))
    for name in sorted(mine.keys() & theirs.keys()):
        differences.equal(f"{name} ({len(mine[name])} bytes, {len(theirs[name])})", mine[name], theirs[name])
    differences.report()


def test_there_are_partitions_to_rebuild() -> None:
    assert {partition.name for partition in UNCOMPRESSED} == {
        "plain-0",
        "seg-bytes-0",
        "seg-index-full-0",
        "seg-time-0",
    }
