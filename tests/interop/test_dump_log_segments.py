"""Kafka's own dump tool finds no problem in klog's files, and every field that it prints equals klog's.

The rule of conformance: exit 0, nothing on stderr, `isvalid: true` on every batch, no invalid bytes at any end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.record import RecordBatch, decode
from tests.interop import dumplog
from tests.interop.dumplog import DumpedBatch, Section
from tests.interop.kafka import Kafka, complaints
from tests.interop.writers import Written
from tests.support import golden

pytestmark = [pytest.mark.java, pytest.mark.deep]

SUFFIXES = (".log", ".index", ".timeindex")


def files_of(written: dict[str, Written]) -> Iterator[Path]:
    for directory in written.values():
        for topic in directory.topics:
            for path in sorted(directory.partition(topic).iterdir()):
                if path.suffix in SUFFIXES:
                    yield path


@pytest.fixture(scope="module")
def sections(kafka: Kafka, written: dict[str, Written]) -> dict[Path, Section]:
    """One run of the tool over all files. It would create a missing index, so only existing files are passed."""
    files = list(files_of(written))
    before = {path: path.read_bytes() for path in files}
    out, err = kafka.dump(files, "--deep-iteration")
    assert complaints(kafka.version, err) == []
    assert {path: path.read_bytes() for path in files} == before
    dumped = dumplog.parse(out)
    assert [Path(section.path) for section in dumped] == files
    return {Path(section.path): section for section in dumped}


def as_dumped(batch: RecordBatch) -> DumpedBatch:
    """klog's view of a batch, with the dump's field names."""
    records = [
        dumplog.DumpedRecord(
            offset=record.offset,
            timestamp_type=golden.record_tuple(record).timestamp_type,
            timestamp=record.timestamp,
            key_size=-1 if record.key is None else len(record.key),
            value_size=-1 if record.value is None else len(record.value),
            sequence=record.sequence,
            header_keys=",".join(name for name, _ in record.headers),
            rest="",
        )
        for record in batch
    ]
    return DumpedBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.count,
        base_sequence=batch.base_sequence,
        last_sequence=-1 if batch.base_sequence < 0 else batch.base_sequence + batch.last_offset - batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        leader_epoch=batch.leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
        position=batch.position,
        timestamp_type={0: "create", 1: "append"}[int(batch.timestamp_type)],
        max_timestamp=batch.max_timestamp,
        size=batch.size,
        magic=batch.magic,
        codec="none" if batch.compression is None else batch.compression,
        crc=batch.crc,
        is_valid=True,
        records=records,
    )


def test_every_batch_and_record_is_printed_as_klog_sees_it(sections: dict[Path, Section]) -> None:
    differences = golden.Differences("DumpLogSegments against klog.record.decode")
    batches = 0
    for path, section in sections.items():
        if path.suffix != ".log":
            continue
        name = f"{path.parent.name}/{path.name}"
        differences.equal(f"{name} starting offset", section.starting_offset, int(path.stem))
        differences.equal(f"{name} invalid bytes", section.invalid_bytes, 0)
        mine = [as_dumped(batch) for batch in decode(path.read_bytes(), path=str(path))]
        differences.equal_lists(name, mine, section.batches)
        batches += len(section.batches)
    differences.report()
    assert batches > 500, "the writers made too few batches"


def test_every_codec_rolled_segment_and_timestamp_type_was_covered(sections: dict[Path, Section]) -> None:
    """Guards the writers: agreement over only small plain batches would prove little."""
    dumped = [batch for section in sections.values() for batch in section.batches]
    assert {batch.codec for batch in dumped} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {batch.timestamp_type for batch in dumped} == {"create", "append"}
    assert {record.value_size for batch in dumped for record in batch.records} >= {-1, 0, 2 << 20}
    assert max(len(batch.records) for batch in dumped) > 300
    assert sum(path.suffix == ".log" and int(path.stem) > 0 for path in sections) >= 25


def test_offset_index_entries_equal_the_files_and_point_to_a_batch(sections: dict[Path, Section]) -> None:
    differences = golden.Differences("DumpLogSegments on .index")
    entries = 0
    for path, section in sections.items():
        if path.suffix != ".index":
            continue
        name, base = f"{path.parent.name}/{path.name}", int(path.stem)
        stored = [(base + offset, position) for offset, position in struct.iter_unpack(">II", path.read_bytes())]
        differences.equal_lists(name, section.entries, stored)
        log = path.with_suffix(".log")
        ends = {batch.position: batch.last_offset for batch in decode(log.read_bytes(), path=str(log))}
        for offset, position in section.entries:
            differences.equal(f"{name} entry at {position}", ends.get(position), offset)
        entries += len(section.entries)
    differences.report()
    assert entries > 300


def test_time_index_entries_equal_the_files_and_rise(sections: dict[Path, Section]) -> None:
    differences = golden.Differences("DumpLogSegments on .timeindex")
    entries = 0
    for path, section in sections.items():
        if path.suffix != ".timeindex":
            continue
        name, base = f"{path.parent.name}/{path.name}", int(path.stem)
        stored = [(time, base + offset) for time, offset in struct.iter_unpack(">qI", path.read_bytes())]
        differences.equal_lists(name, section.entries, stored)
        times = [timestamp for timestamp, _ in section.entries]
        differences.equal(f"{name} rises", times, sorted(set(times)))
        entries += len(section.entries)
    differences.report()
    assert entries > 100


def test_indexes_pass_kafkas_sanity_check(kafka: Kafka, written: dict[str, Written]) -> None:
    """The check that older brokers ran at every start; an exception fails it."""
    files = [path for path in files_of(written) if path.suffix in {".index", ".timeindex"}]
    out, err = kafka.dump(files, "--index-sanity-check")
    assert err == ""
    empty = sum(path.stat().st_size == 0 for path in files if path.suffix == ".index")
    assert out.count(".index is empty.") <= empty
    assert out.count("passed sanity check.") + out.count(".index is empty.") == len(files)


def test_snapshots_are_readable(kafka: Kafka, written: dict[str, Written]) -> None:
    """klog's appends have no producer id, so a snapshot is ten bytes without entries."""
    files = [
        path
        for directory in written.values()
        for topic in directory.topics
        for path in sorted(directory.partition(topic).glob("*.snapshot"))
    ]
    assert files
    out, err = kafka.dump(files)
    assert err == ""
    assert all(section.lines == [] for section in dumplog.parse(out))
