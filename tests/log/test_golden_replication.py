"""The batches that Kafka wrote are replicated, one after the other, into an empty log of klog. The result is Kafka's
files with the contents that Kafka lists.

The segments are the same, too: klog rolls where the broker rolled. Logs rewritten by a cleaner have other segments, and
lack the records that began their epochs and ended their transactions; for them only the records are compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.record import decode
from tests.support import golden

PARTITIONS = [partition for partition in golden.all_partitions() if partition.entry["high_watermark"] is not None]
# The broker was restarted years after these records' timestamps: each restart expired their producers.
FORGOTTEN = {"epochs/terms-0"}


def is_cleaned(partition: golden.Partition) -> bool:
    return "compact" in partition.entry["config"].get("cleanup.policy", "")


@pytest.mark.parametrize("partition", PARTITIONS, ids=[partition.id for partition in PARTITIONS])
def test_replicating_kafkas_log_gives_kafkas_files(partition: golden.Partition, tmp_path: Path) -> None:
    entry = partition.entry
    path = tmp_path / f"{partition.topic}-{partition.number}"
    options = {"config": entry["config"], "clock": ManualClock(partition.largest_timestamp)}
    first = entry["segments"][0]["base_offset"]
    with klog.Log.open(path, topic_id=partition.topic_id, **options) as log:
        if first:
            log.truncate_fully_and_start_at(first)
        for segment in entry["segments"]:
            data = (partition.directory / f"{segment['base_offset']:020d}.log").read_bytes()
            for batch in decode(data):
                log.append_batches(data[batch.position : batch.position + batch.size], origin="replication")
        log.update_high_watermark(entry["high_watermark"])
        if entry["log_start_offset"] > first:
            log.maybe_increment_log_start_offset(entry["log_start_offset"])
        assert log.last_stable_offset == entry["last_stable_offset"]
        expected = [record for record in partition.records if record.offset >= entry["log_start_offset"]]
        found = [golden.record_tuple(record) for record in log.read(include_control=True, isolation="log_end")]
        assert found == expected
    if not is_cleaned(partition):
        with klog.Log.open(path, clean_shutdown=True, **options) as log:
            golden.compare_log(log, partition, with_producers=partition.id not in FORGOTTEN)
