"""Every batch in the directories that Kafka wrote is read as Kafka reads it, and encoded again byte for byte."""

from pathlib import Path

import pyarrow as pa
import pytest

from klog.record import (
    FIELDS,
    Record,
    RecordBatch,
    TimestampType,
    columns,
    decode,
    encode,
    iter_records,
    validate,
)
from tests.support.golden_batches import GOLDEN, GoldenPartition, partitions

PARTITIONS = partitions()


def test_golden_directories_exist() -> None:
    assert {partition.case for partition in PARTITIONS} >= {"plain", "codecs"}


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_records_are_those_of_the_manifest(partition: GoldenPartition) -> None:
    got = []
    for path in partition.logs():
        for batch in decode(path.read_bytes(), path=path):
            got += [
                {
                    "o": record.offset,
                    "ts": record.timestamp,
                    "tt": ("create", "append")[record.timestamp_type],
                    "k": record.key,
                    "v": record.value,
                    "h": list(record.headers),
                    "le": record.leader_epoch,
                    "pid": record.producer_id,
                    "pe": record.producer_epoch,
                    "seq": record.sequence,
                    "tx": record.is_transactional,
                    "ctl": record.control_type,
                    "codec": batch.compression,
                }
                for record in batch
            ]
    assert got == partition.records()


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_segments_are_those_of_the_manifest(partition: GoldenPartition) -> None:
    for path, segment in zip(partition.logs(), partition.manifest["segments"], strict=True):
        data = path.read_bytes()
        batches = list(decode(data))
        assert validate(data) == segment["records"]
        assert len(batches) == segment["batches"]
        assert max((batch.max_timestamp for batch in batches), default=-1) == segment["max_timestamp"]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_columns_hold_the_same(partition: GoldenPartition) -> None:
    for path in partition.logs():
        data = path.read_bytes()
        table = pa.table(pa.record_batch(columns(data, include_control=True, fields=[*FIELDS, "leader_epoch"])))
        table.validate(full=True)
        records = list(iter_records(data, include_control=True))
        assert table["offset"].to_pylist() == [record.offset for record in records]
        assert table["timestamp"].cast("int64").fill_null(-1).to_pylist() == [record.timestamp for record in records]
        assert table["timestamp_type"].to_pylist() == [record.timestamp_type for record in records]
        assert table["key"].to_pylist() == [record.key for record in records]
        assert table["value"].to_pylist() == [record.value for record in records]
        assert table["leader_epoch"].to_pylist() == [record.leader_epoch for record in records]
        assert [[(header["key"], header["value"]) for header in row] for row in table["headers"].to_pylist()] == [
            list(record.headers) for record in records
        ]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_views_hold_the_same(partition: GoldenPartition) -> None:
    for path in partition.logs():
        data = path.read_bytes()
        fields = [*FIELDS, "leader_epoch"]
        plain = pa.record_batch(columns(data, include_control=True, fields=fields))
        views = pa.record_batch(columns(data, include_control=True, fields=fields, views=True))
        views.validate(full=True)
        assert views.schema.field("value").type == views.schema.field("key").type == pa.binary_view()
        assert views.to_pylist() == plain.to_pylist()


def as_written(batch: RecordBatch) -> list[Record]:
    """The batch's records with timestamps computed from their deltas. A LogAppendTime batch still has the producer's,
    which readers never return: this clears the bit."""
    data = bytearray(batch.raw)
    data[22] &= ~0x08
    (batch,) = decode(data, verify_crc=False)
    return list(batch)


def rebuild(batch: RecordBatch) -> bytes:
    """Rebuild the batch with encode(), from its records and its header fields."""
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return encode(
        as_written(batch),
        base_offset=batch.base_offset,
        compression=batch.compression,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        timestamp_type=batch.timestamp_type,
        log_append_time=batch.max_timestamp if stamped else -1,
        max_timestamp=None if batch.count else batch.max_timestamp,
        delete_horizon_ms=batch.delete_horizon_ms,
        last_offset_delta=batch.last_offset - batch.base_offset,
        keep_offsets=True,
    )


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_batches_are_rebuilt(partition: GoldenPartition) -> None:
    """Uncompressed batches to the byte; of the others the header, except length and checksum, and every record."""
    for path in partition.logs():
        for batch in decode(path.read_bytes()):
            again, raw = rebuild(batch), bytes(batch.raw)
            if batch.compression == "none":
                assert again == raw
            else:
                assert (again[:8], again[12:17], again[21:61]) == (raw[:8], raw[12:17], raw[21:61])
                (rebuilt,) = decode(again)
                assert list(rebuilt) == list(batch)


def kind(batch: RecordBatch) -> str:
    """The kinds of batches that a byte-for-byte test must meet at least once."""
    words = [
        "empty" if batch.count == 0 else "",
        "gaps" if 0 < batch.count <= batch.last_offset - batch.base_offset else "",
        "horizon" if batch.delete_horizon_ms is not None else "",
        "transactional" if batch.is_transactional else "idempotent" if batch.producer_id >= 0 else "",
        "stamped" if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else "",
        batch.control_type or "",
        "" if batch.compression == "none" else batch.compression,
    ]
    return " ".join(word for word in words if word)


def test_the_golden_files_hold_every_kind_of_batch() -> None:
    kinds = {
        kind(batch) for partition in PARTITIONS for path in partition.logs() for batch in decode(path.read_bytes())
    }
    assert kinds >= {
        "",
        "idempotent",
        "transactional",
        "stamped",
        "empty idempotent",
        "gaps",
        "horizon",
        "gaps horizon",
        "transactional commit",
        "transactional abort",
        "horizon transactional commit",
        "horizon transactional abort",
        "leader_change",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
        "idempotent gzip",
        "idempotent lz4",
        "stamped lz4",
        "stamped zstd",
        "transactional snappy",
        "transactional zstd",
        "gaps horizon idempotent zstd",
    }


# KRaft's snapshots are batches too, in separate files -----------------------------------------------------------------

SNAPSHOTS = sorted(GOLDEN.glob("*/logdir/**/*.checkpoint"))


def test_snapshots_of_the_metadata_log_exist() -> None:
    assert len([path for path in SNAPSHOTS if path.parent.name == "__cluster_metadata-0"]) == 3


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: f"{path.relative_to(GOLDEN).parts[0]}-{path.stem}")
def test_snapshots_have_header_and_footer_and_are_rebuilt(path: Path) -> None:
    """A manifest has no more to list: their offsets count from 0 without a gap."""
    data = path.read_bytes()
    batches = list(decode(data, path=path))
    records = list(iter_records(data, include_control=True))
    assert [record.offset for record in records] == list(range(validate(data)))
    assert (records[0].control_type, records[-1].control_type) == ("snapshot_header", "snapshot_footer")
    assert b"".join(map(rebuild, batches)) == data
    table = pa.table(pa.record_batch(columns(data, include_control=True)))
    assert table["value"].to_pylist() == [record.value for record in records]


def test_control_records_of_the_metadata_log() -> None:
    names = {
        record.control_type
        for path in [*SNAPSHOTS, *GOLDEN.glob("*/logdir/__cluster_metadata-0/*.log")]
        for record in iter_records(path.read_bytes(), include_control=True)
    }
    assert names >= {None, "leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters"}
