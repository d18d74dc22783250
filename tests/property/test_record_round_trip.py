"""Records round trip through the fast code and the slow reference model, in all four combinations."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from klog.record import Encoder, Record, columns, decode, encode, iter_records, validate
from tests.support import reference
from tests.support.reference import ReferenceBatch, ReferenceRecord
from tests.support.strategies import COMPRESSIONS, record_lists, reference_batches, tuples


def as_reference(record: Record) -> ReferenceRecord:
    return ReferenceRecord(record.key, record.value, record.timestamp, record.headers, record.offset)


@given(record_lists, st.sampled_from(COMPRESSIONS), st.integers(0, 2**62))
def test_encode_and_read(records: list, compression, base_offset: int) -> None:
    data = encode(records, base_offset=base_offset, compression=compression)
    assert validate(data) == len(records)
    got = [(r.key, r.value, r.timestamp, r.headers) for r in iter_records(data)]
    assert got == records
    assert [r.offset for r in iter_records(data)] == list(range(base_offset, base_offset + len(records)))
    (batch,) = decode(data)
    assert batch.max_timestamp == max(record[2] for record in records)
    assert batch.size == len(data)


@given(st.lists(reference_batches(), max_size=3))
def test_klog_reads_the_references_batches(batches: list[ReferenceBatch]) -> None:
    data = b"".join(map(reference.encode, batches))
    found = list(decode(data))
    assert len(found) == len(batches)
    for want, got in zip(batches, found, strict=True):
        assert [as_reference(record) for record in got] == want.records
        assert got.count == len(want.records)
        assert got.attributes == want.attributes
        names = ("base_offset", "leader_epoch", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch")
        for name in (*names, "base_sequence"):
            assert getattr(got, name) == getattr(want, name), name
        assert got.last_offset == want.base_offset + want.last_offset_delta
        assert got.is_transactional == bool(want.attributes & 16)
        assert got.delete_horizon_ms == (want.base_timestamp if want.attributes & 64 else None)
    assert validate(data) == len(reference.all_records(batches))
    assert reference.decode(data) == batches


@given(reference_batches(codecs=(0,)))
def test_klog_writes_the_same_bytes_as_the_reference(batch: ReferenceBatch) -> None:
    """encode() with the records and all other fields writes the same bytes."""
    batch.records = [ReferenceRecord(r.key, r.value, max(r.timestamp, -1), r.headers, r.offset) for r in batch.records]
    append_time = batch.attributes & 8
    if append_time:  # such a batch has one timestamp; its deltas are lost
        batch.records = []
    data = reference.encode(batch)
    (source,) = decode(data)
    horizon = batch.base_timestamp if batch.attributes & 64 else None
    again = encode(
        source,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=bool(batch.attributes & 16),
        timestamp_type=1 if append_time else 0,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        delete_horizon_ms=horizon,
        last_offset_delta=batch.last_offset_delta,
        keep_offsets=True,
    )
    assert again == data


@given(record_lists, st.sampled_from(COMPRESSIONS), st.integers(70, 1000), st.integers(1, 2000), st.integers(0, 2**50))
def test_the_encoder_keeps_every_record(
    records: list, compression, batch_max: int, group_max: int, first_offset: int
) -> None:
    encoder = Encoder(
        (Record(*record) for record in records),
        compression=compression,
        batch_bytes_max=batch_max,
        message_bytes_max=1 << 20,
        timestamp_default=0,
        timestamp_min=0,
        timestamp_max=2**63 - 1,
    )
    got, offset = [], first_offset
    while (group := encoder.next_group(group_max)) is not None:
        group.assign(offset, 3)
        offset += group.count
        got += iter_records(group)
        assert validate(group) == group.count
    assert [(r.key, r.value, r.timestamp, r.headers) for r in got] == records
    assert [r.offset for r in got] == list(range(first_offset, first_offset + len(records)))


@given(st.lists(st.tuples(st.lists(tuples, max_size=10), st.sampled_from(COMPRESSIONS)), max_size=4), st.data())
def test_columns_hold_the_records(batches: list, data: st.DataObject) -> None:
    out, offset = [], 0
    for records, compression in batches:
        out.append(encode(records, base_offset=offset, compression=compression, last_offset_delta=len(records)))
        offset += len(records) + 1
    buffer = b"".join(out)
    start = data.draw(st.integers(-1, offset + 1))
    stop = data.draw(st.integers(-1, offset + 1))
    want = list(iter_records(buffer, start=start, stop=stop))
    batch = pa.record_batch(columns(buffer, start=start, stop=stop))
    batch.validate(full=True)
    assert batch["offset"].to_pylist() == [r.offset for r in want]
    assert batch["timestamp"].cast("int64").fill_null(-1).to_pylist() == [r.timestamp for r in want]
    assert batch["key"].to_pylist() == [r.key for r in want]
    assert batch["value"].to_pylist() == [r.value for r in want]
    repaired = [
        [(key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value) for key, value in r.headers]
        for r in want
    ]
    assert [[(h["key"], h["value"]) for h in row] for row in batch["headers"].to_pylist()] == repaired
