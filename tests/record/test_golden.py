"""Every batch in the directories that Kafka wrote: read as Kafka reads it, and written again byte for byte."""

import pyarrow as pa
import pytest

from klog.record import FIELDS, columns, decode, encode, iter_records, validate
from tests.support.golden_batches import GoldenPartition, partitions

PARTITIONS = partitions()


def test_there_are_some() -> None:
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


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_batches_are_rebuilt(partition: GoldenPartition) -> None:
    """Uncompressed ones to the byte, the others to the record."""
    for path in partition.logs():
        for batch in decode(path.read_bytes()):
            # Deltas of a LogAppendTime batch keep the producer's times, which no record shows.
            if batch.timestamp_type == 1 or batch.count == 0:
                continue
            again = encode(
                batch,
                base_offset=batch.base_offset,
                compression=batch.compression,
                leader_epoch=batch.leader_epoch,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=batch.is_transactional,
                is_control=batch.is_control,
                delete_horizon_ms=batch.delete_horizon_ms,
                last_offset_delta=batch.last_offset - batch.base_offset,
                keep_offsets=True,
            )
            if batch.compression == "none":
                assert again == bytes(batch.raw)
            else:
                (rebuilt,) = decode(again)
                assert list(rebuilt) == list(batch)
