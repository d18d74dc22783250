"""Batches and checksums in memory: encode and decode against aiokafka's Cython codec, CRC-32C against google-crc32c.

All work on batches of about one MiB (bench.workloads). Encoding starts from what a caller may have: Arrow columns,
parallel lists, a list of tuples, or one record after the other, and ends in bytes or in a pooled buffer ("group"), as
Log.append takes it; aiokafka's builder has its one way. "encode 1KiB memcpy" sets columns against a copy of the same
bytes, both over a set that no cache holds. Decoding reads key, value, timestamp and offset of every record and checks
the CRC, on both sides.
"""

from __future__ import annotations

import array

import google_crc32c
import pyarrow as pa
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.contest import Contest, Contestant, Factory
from bench.workloads import Tuple, Workload, noise, workload
from klog import record
from klog.codec import crc32c


def aiokafka_encode(tuples: list[Tuple]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, (key, value, timestamp) in enumerate(tuples):
        builder.append(offset, timestamp=timestamp, key=key, value=value, headers=[])
    return bytes(builder.build())


def aiokafka_decode(batch: bytes) -> list[tuple[int, int, bytes, bytes]]:
    rows = []
    records = MemoryRecords(batch)
    while (found := records.next_batch()) is not None:
        if not found.validate_crc():
            raise ValueError("crc")
        rows.extend((r.offset, r.timestamp, r.key, r.value) for r in found)
    return rows


def _aiokafka_touch(batch: bytes) -> None:
    """Decode and read every field, keeping nothing: the fair loop against klog's."""
    records = MemoryRecords(batch)
    while (found := records.next_batch()) is not None:
        if not found.validate_crc():
            raise ValueError("crc")
        for r in found:
            r.offset, r.timestamp, r.key, r.value  # noqa: B018


def _klog_touch(batch: bytes) -> None:
    for r in record.iter_records(batch):
        r.offset, r.timestamp, r.key, r.value  # noqa: B018


def _rows_of_columns(batch: bytes) -> list[tuple[int, int, bytes, bytes]]:
    import pyarrow as pa

    table = pa.record_batch(record.columns(batch)).to_pydict()
    stamps = [int(stamp.timestamp() * 1000 + 0.5) for stamp in table["timestamp"]]
    return list(zip(table["offset"], stamps, table["key"], table["value"], strict=True))


_STREAM = 24  # MiB-sized sources in turn: together more than the caches hold for one core


def _table(tuples: list[Tuple]) -> pa.RecordBatch:
    key, value, timestamp = zip(*tuples, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "timestamp": pa.array(timestamp, pa.timestamp("ms", "UTC")),
        }
    )


def _group(records: object) -> record.BatchGroup:
    """One batch in pooled memory."""
    made = record.Encoder(
        records,  # type: ignore[arg-type]
        batch_bytes_max=1 << 30,
        message_bytes_max=1 << 30,
        timestamp_default=0,
        timestamp_min=0,
        timestamp_max=1 << 62,
    ).next_group(1 << 30)
    assert made is not None
    return made


def _append_each(builder: record.BatchBuilder, tuples: list[Tuple]) -> record.BatchGroup:
    append = builder.append
    for key, value, timestamp in tuples:
        append(key, value, timestamp)
    return builder.build()


def _encode(load: Workload) -> Contest:
    tuples = load.tuples()
    table = _table(tuples)
    keys, values, stamps = map(list, zip(*tuples, strict=True))
    lists = record.Lists(keys, values, array.array("q", stamps))
    builder = record.BatchBuilder()

    def check() -> None:
        expected = aiokafka_encode(tuples)
        assert record.encode(tuples) == record.encode(table) == expected, "the same records make the same bytes"
        for made in (_group(table), _group(lists), _group(tuples), _append_each(builder, tuples)):
            made.assign(0, -1)
            assert bytes(made) == expected

    return Contest(
        f"encode {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog columns (Arrow) -> group", lambda: _group(table)),
            Contestant("klog columns (Arrow) -> bytes", lambda: record.encode(table)),
            Contestant("klog lists -> group", lambda: _group(lists)),
            Contestant("klog tuples -> group", lambda: _group(tuples)),
            Contestant("klog tuples -> bytes", lambda: record.encode(tuples)),
            Contestant("klog append() each -> group", lambda: _append_each(builder, tuples)),
            Contestant("aiokafka builder", lambda: aiokafka_encode(tuples)),
        ),
        check,
    )


def _encode_stream(load: Workload) -> Contest:
    """Columns into batches, beside a plain copy of as many bytes."""
    tuples = load.tuples()
    tables = [_table(tuples) for _ in range(_STREAM)]
    batches = [record.encode(table) for table in tables]
    target = bytearray(batches[0])

    def encode() -> None:
        for table in tables:
            _group(table)

    def copy() -> None:
        for batch in batches:
            target[:] = batch

    def check() -> None:
        assert batches == [aiokafka_encode(tuples)] * _STREAM
        copy()
        assert target == batches[0]

    return Contest(
        f"encode {load.name} memcpy",
        load.count * _STREAM,
        load.bytes * _STREAM,
        (Contestant("klog columns (Arrow) -> group", encode), Contestant("memcpy", copy)),
        check,
    )


def _decode(load: Workload) -> Contest:
    tuples = load.tuples()
    batch = aiokafka_encode(tuples)

    def check() -> None:
        expected = [(offset, stamp, key, value) for offset, (key, value, stamp) in enumerate(tuples)]
        assert aiokafka_decode(batch) == expected
        assert [(r.offset, r.timestamp, r.key, r.value) for r in record.iter_records(batch)] == expected
        assert _rows_of_columns(batch) == expected

    return Contest(
        f"decode {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog.record.columns (Arrow)", lambda: record.columns(batch)),
            Contestant("klog records, all fields read", lambda: _klog_touch(batch)),
            Contestant("aiokafka records, all fields read", lambda: _aiokafka_touch(batch)),
        ),
        check,
    )


def _iterate(load: Workload) -> Contest:
    """What the walk itself costs: every record made, none looked into; the CRC checked on both sides."""
    tuples = load.tuples()
    batch = aiokafka_encode(tuples)

    def aiokafka_iterate() -> int:
        count = 0
        records = MemoryRecords(batch)
        while (found := records.next_batch()) is not None:
            if not found.validate_crc():
                raise ValueError("crc")
            for _ in found:
                count += 1
        return count

    def klog_iterate() -> int:
        count = 0
        for _ in record.iter_records(batch):
            count += 1
        return count

    def check() -> None:
        assert klog_iterate() == aiokafka_iterate() == record.validate(batch) == load.count
        assert record.columns(batch).num_rows == load.count

    return Contest(
        f"decode unread {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog.record.validate", lambda: record.validate(batch)),
            Contestant("klog.record.columns (Arrow)", lambda: record.columns(batch)),
            Contestant("klog records, none read", klog_iterate),
            Contestant("aiokafka records, none read", aiokafka_iterate),
        ),
        check,
    )


def _views(load: Workload) -> Contest:
    """Views leave keys and values where they are: what remains is the CRC and 16 bytes each, against copying it all."""
    batch = aiokafka_encode(load.tuples())
    target = memoryview(bytearray(len(batch)))

    def check() -> None:
        import pyarrow as pa

        views = pa.record_batch(record.columns(batch, views=True))
        assert views.to_pylist() == pa.record_batch(record.columns(batch)).to_pylist()

    def copy() -> None:
        target[:] = batch

    return Contest(
        f"views {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog.record.columns, views", lambda: record.columns(batch, views=True)),
            Contestant("klog.record.columns (Arrow)", lambda: record.columns(batch)),
            Contestant("memcpy of the batch", copy),
        ),
        check,
    )


def _crc32c(size: int, name: str) -> Contest:
    data = noise(size)

    def check() -> None:
        assert crc32c(b"123456789") == google_crc32c.value(b"123456789") == 0xE3069283
        assert crc32c(data) == google_crc32c.value(data)

    return Contest(
        f"crc32c {name}",
        0,
        size,
        (
            Contestant("klog.codec.crc32c", lambda: crc32c(data)),
            Contestant("google-crc32c", lambda: google_crc32c.value(data)),
        ),
        check,
    )


FACTORIES: dict[str, Factory] = {
    "encode 100B": lambda tiny, folder: _encode(workload("100B", tiny=tiny)),
    "encode 1KiB": lambda tiny, folder: _encode(workload("1KiB", tiny=tiny)),
    "encode 100B memcpy": lambda tiny, folder: _encode_stream(workload("100B", tiny=tiny)),
    "encode 1KiB memcpy": lambda tiny, folder: _encode_stream(workload("1KiB", tiny=tiny)),
    "decode 100B": lambda tiny, folder: _decode(workload("100B", tiny=tiny)),
    "decode 1KiB": lambda tiny, folder: _decode(workload("1KiB", tiny=tiny)),
    "decode unread 100B": lambda tiny, folder: _iterate(workload("100B", tiny=tiny)),
    "decode unread 1KiB": lambda tiny, folder: _iterate(workload("1KiB", tiny=tiny)),
    "views 100B": lambda tiny, folder: _views(workload("100B", tiny=tiny)),
    "views 1KiB": lambda tiny, folder: _views(workload("1KiB", tiny=tiny)),
    "crc32c 1KiB": lambda tiny, folder: _crc32c(1 << 10, "1KiB"),
    "crc32c 16KiB": lambda tiny, folder: _crc32c(1 << 14, "16KiB"),
    "crc32c 1MiB": lambda tiny, folder: _crc32c(1 << 20, "1MiB"),
}
