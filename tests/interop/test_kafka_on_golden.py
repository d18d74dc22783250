"""Check Kafka in this setup first: over files that Kafka wrote, the parser and the Java programs must agree with the
manifests.

klog is not involved: a misreading of Kafka must not look like agreement.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.interop import dumplog
from tests.interop.kafka import Kafka, KafkaClasses
from tests.support import golden

pytestmark = [pytest.mark.java, pytest.mark.deep]

EMPTIED_AT_MS = 1795246974723  # tests/golden/README.md, "Time"
DUMPED = ("appendtime", "codecs", "plain", "segments", "txn")


def test_file_records_give_the_manifests_records(kafka_classes: KafkaClasses) -> None:
    differences = golden.Differences("FileRecords")
    for partition in golden.all_partitions():
        records, codecs = [], []
        for path in sorted(partition.directory.glob("*.log")):
            answer = kafka_classes.records(path)
            assert answer["trailing_bytes"] == 0
            for batch in answer["batches"]:
                records += [golden.golden_record(line) for line in batch["records"]]
                codecs += [line["codec"] for line in batch["records"]]
        differences.equal_lists(f"{partition.id} records", records, partition.records)
        differences.equal_lists(f"{partition.id} codecs", codecs, partition.codecs)
    differences.report()


def test_the_loader_gives_the_manifests_offsets_and_producers(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    differences = golden.Differences("UnifiedLog")
    for partition in golden.all_partitions():
        # The loader writes, and needs a directory named like a partition.
        directory = Path(shutil.copytree(partition.directory, tmp_path / partition.case / partition.name))
        for path in directory.glob("*.log"):
            if path.stat().st_size == 0:  # without records Kafka uses the modification time as largest timestamp
                os.utime(path, (EMPTIED_AT_MS / 1000, EMPTIED_AT_MS / 1000))
        entry = partition.entry
        answer = kafka_classes.load(
            directory,
            clean=golden.manifest(partition.case)["clean_shutdown"],
            now_ms=partition.largest_timestamp,
            log_start_offset=entry["log_start_offset"],
            config=entry["config"],
            timestamps=[query for query, _ in partition.timestamp_queries],
        )
        where = partition.id
        differences.equal(f"{where} end", answer["log_end_offset"], entry["log_end_offset"])
        got = [(item["base_offset"], item["size"]) for item in answer["segments"]]
        differences.equal(f"{where} segments", got, [(it["base_offset"], it["size"]) for it in entry["segments"]])
        got_epochs = [tuple(item) for item in answer["leader_epochs"]]
        differences.equal(f"{where} epochs", got_epochs, partition.loaded_leader_epochs)
        got_producers = golden.expected_producers(answer["producers"])
        differences.equal(f"{where} producers", got_producers, golden.expected_producers(entry["producers"]))
        expected_times = [[] if found is None else list(found) for _, found in partition.timestamp_queries]
        differences.equal(f"{where} timestamps", answer["timestamps"], expected_times)
        expected = [record for record in partition.records if record.offset >= entry["log_start_offset"]]
        got_records = [golden.golden_record(line) for line in answer["records"]]
        differences.equal_lists(f"{where} records", got_records, expected)
    differences.report()


def test_the_dump_is_read_without_loss(kafka: Kafka) -> None:
    files = {
        path: partition
        for case in DUMPED
        for partition in golden.partitions(case)
        for path in sorted(partition.directory.glob("*.log"))
    }
    out, _ = kafka.dump(list(files), "--deep-iteration")
    sections = dumplog.parse(out)
    assert [section.path for section in sections] == [str(path) for path in files]
    differences = golden.Differences("DumpLogSegments")
    seen: dict[str, list[tuple[int, int, int, int, int, str]]] = {}
    for section, partition in zip(sections, files.values(), strict=True):
        assert section.starting_offset == int(Path(section.path).stem)
        assert all(batch.is_valid for batch in section.batches)
        for batch in section.batches:
            for record in batch.records:
                row = (record.offset, record.timestamp, record.key_size, record.value_size, record.sequence)
                seen.setdefault(partition.id, []).append((*row, record.header_keys))
    for partition in {partition.id: partition for partition in files.values()}.values():
        expected = [
            (
                record.offset,
                record.timestamp,
                -1 if record.key is None else len(record.key),
                -1 if record.value is None else len(record.value),
                record.sequence,
                ",".join(name for name, _ in record.headers),
            )
            for record in partition.records
        ]
        differences.equal_lists(partition.id, seen.get(partition.id, []), expected)
    differences.report()


REPRODUCED = ("appendtime", "codecs", "flights", "idempotent", "large", "plain", "segments")


def test_kafka_reproduces_its_own_directories(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    """The basis of test_same_bytes_as_kafka.py: appended batch by batch, the broker's files are reproduced."""
    differences = golden.Differences("appendAsFollower")
    for case in REPRODUCED:
        for partition in golden.partitions(case):
            if not partition.records:
                continue  # becoming leader added an epoch at 0, without an append
            again = tmp_path / partition.name
            kafka_classes.append(
                again,
                sorted(partition.directory.glob("*.log")),
                now_ms=partition.largest_timestamp,
                config=partition.entry["config"],
                topic_id=partition.topic_id,
            )
            theirs = {path.name: path.read_bytes() for path in partition.directory.iterdir()}
            mine = {path.name: path.read_bytes() for path in again.iterdir()}
            differences.equal(partition.id, sorted(it for it in mine if mine[it] != theirs.get(it)), [])
            differences.equal(f"{partition.id} names", sorted(mine), sorted(theirs))
    differences.report()
