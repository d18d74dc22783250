"""Batches and checksums in memory: encode and decode against aiokafka's Cython codec, CRC-32C against google-crc32c.

All work on batches of about one MiB and cycle through STREAM of them (bench.workloads). Encoding starts from the inputs
that a caller may have (Arrow columns, parallel lists, a list of tuples, or one record after the other) and ends in
bytes or in a pooled buffer ("group"), as Log.append uses it; aiokafka's builder has only one input. Decoding reads key,
value, timestamp and offset of every record and checks the CRC, on both sides. The limit is a copy of the batch; it is
also the peer of the contests named "memcpy", "views" and "validate 1KiB".
"""

from __future__ import annotations

import array

import google_crc32c
import pyarrow as pa
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.contest import Contest, Contestant, Factory
from bench.workloads import STREAM, Tuple, Workload, arrow_table, copies, cycling, memcpy, noise, workload
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
    """Decode and read every field, and keep nothing: the same loop as klog's."""
    records = MemoryRecords(batch)
    while (found := records.next_batch()) is not None:
        if not found.validate_crc():
            raise ValueError("crc")
        for r in found:  # each field in its own statement: one statement would also make a tuple
            r.offset  # noqa: B018
            r.timestamp  # noqa: B018
            r.key  # noqa: B018
            r.value  # noqa: B018


def _klog_touch(batch: bytes) -> None:
    for r in record.iter_records(batch):
        r.offset  # noqa: B018
        r.timestamp  # noqa: B018
        r.key  # noqa: B018
        r.value  # noqa: B018


def _rows_of_columns(batch: bytes) -> list[tuple[int, int, bytes, bytes]]:
    table = pa.record_batch(record.columns(batch)).to_pydict()
    stamps = [int(stamp.timestamp() * 1000 + 0.5) for stamp in table["timestamp"]]
    return list(zip(table["offset"], stamps, table["key"], table["value"], strict=True))


def _copying(batches: list[bytes]) -> Contestant:
    return Contestant("memcpy", cycling(memcpy(len(batches[0])), batches))


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


def _lists(tuples: list[Tuple]) -> record.Lists:
    keys, values, stamps = map(list, zip(*tuples, strict=True))
    return record.Lists(keys, values, array.array("q", stamps))


def _encode(load: Workload) -> Contest:
    sources = [load.tuples() for _ in range(STREAM)]
    tables, lists = [arrow_table(tuples) for tuples in sources], [_lists(tuples) for tuples in sources]
    builder = record.BatchBuilder()
    batches = copies(aiokafka_encode(sources[0]))

    def check() -> None:
        assert [record.encode(table) for table in tables] == batches, "the same records make the same bytes"
        assert record.encode(sources[-1]) == aiokafka_encode(sources[-1]) == batches[-1]
        for made in (*map(_group, (tables[0], lists[0], sources[0])), _append_each(builder, sources[0])):
            made.assign(0, -1)
            assert bytes(made) == batches[0]

    return Contest(
        f"encode {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog columns (Arrow) -> group", cycling(_group, tables), goal=10),
            Contestant("klog columns (Arrow) -> bytes", cycling(record.encode, tables)),
            Contestant("klog lists -> group", cycling(_group, lists), goal=5),
            Contestant("klog tuples -> group", cycling(_group, sources), goal=5),
            Contestant("klog tuples -> bytes", cycling(record.encode, sources), goal=5),
            Contestant(
                "klog append() each -> group", cycling(lambda each: _append_each(builder, each), sources), goal=4
            ),
            Contestant("aiokafka builder", cycling(aiokafka_encode, sources)),
        ),
        check,
        limit=_copying(batches),
    )


def _encode_beside_a_copy(load: Workload, *, goal: float | None = None) -> Contest:
    """Encode columns to batches; the peer is a plain copy of the same number of bytes."""
    tables = [arrow_table(load.tuples()) for _ in range(STREAM)]
    batches = [record.encode(table) for table in tables]
    copying = _copying(batches)

    def check() -> None:
        assert batches == [aiokafka_encode(load.tuples())] * STREAM

    return Contest(
        f"encode {load.name} memcpy",
        load.count,
        load.bytes,
        (Contestant("klog columns (Arrow) -> group", cycling(_group, tables), goal=goal), copying),
        check,
        limit=copying,
    )


def _decode(load: Workload) -> Contest:
    tuples = load.tuples()
    batches = copies(aiokafka_encode(tuples))

    def check() -> None:
        expected = [(offset, stamp, key, value) for offset, (key, value, stamp) in enumerate(tuples)]
        assert aiokafka_decode(batches[0]) == expected
        assert [(r.offset, r.timestamp, r.key, r.value) for r in record.iter_records(batches[0])] == expected
        assert _rows_of_columns(batches[0]) == expected

    return Contest(
        f"decode {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog.record.columns (Arrow)", cycling(record.columns, batches)),
            Contestant("klog records, all fields read", cycling(_klog_touch, batches)),
            Contestant("aiokafka records, all fields read", cycling(_aiokafka_touch, batches)),
        ),
        check,
        limit=_copying(batches),
    )


def _klog_walk(batch: bytes, *, lazy: bool = False) -> None:
    for _ in record.iter_records(batch, lazy=lazy):
        pass


def _aiokafka_walk(batch: bytes) -> None:
    records = MemoryRecords(batch)
    while (found := records.next_batch()) is not None:
        if not found.validate_crc():
            raise ValueError("crc")
        for _ in found:
            pass


def _iterate(load: Workload) -> Contest:
    """Iterate over the records without reading their fields; the CRC is checked on both sides.

    klog's lazy records leave keys and values in the batch; the other records copy them, as aiokafka's do.
    """
    batches = copies(aiokafka_encode(load.tuples()))

    def check() -> None:
        for lazy in (True, False):
            assert sum(1 for _ in record.iter_records(batches[0], lazy=lazy)) == load.count
        assert len(aiokafka_decode(batches[0])) == load.count
        assert record.columns(batches[0]).num_rows == record.validate(batches[0]) == load.count

    return Contest(
        f"decode unread {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog.record.validate", cycling(record.validate, batches)),
            Contestant("klog.record.columns (Arrow)", cycling(record.columns, batches), goal=8),
            Contestant(
                "klog lazy records, none read", cycling(lambda batch: _klog_walk(batch, lazy=True), batches), goal=4
            ),
            Contestant(
                "klog records, copied, none read",
                cycling(_klog_walk, batches),
                goal=2.5,
            ),
            Contestant("aiokafka records, none read", cycling(_aiokafka_walk, batches)),
        ),
        check,
        limit=_copying(batches),
    )


def _views(load: Workload, *, goal: float | None = None) -> Contest:
    """Decode to views, which copy no keys and values; the peer copies the whole batch."""
    batches = copies(aiokafka_encode(load.tuples()))
    copying = _copying(batches)

    def check() -> None:
        views = pa.record_batch(record.columns(batches[0], views=True))
        assert views.to_pylist() == pa.record_batch(record.columns(batches[0])).to_pylist()

    return Contest(
        f"views {load.name}",
        load.count,
        load.bytes,
        (
            Contestant(
                "klog.record.columns, views",
                cycling(lambda batch: record.columns(batch, views=True), batches),
                goal=goal,
            ),
            Contestant("klog.record.columns (Arrow)", cycling(record.columns, batches)),
            copying,
        ),
        check,
        limit=copying,
    )


def _validate(load: Workload, *, beside_columns: bool, goal: float) -> Contest:
    """Check every field and the CRC, and build nothing; the peer makes columns, or copies the batch."""
    batches = copies(aiokafka_encode(load.tuples()))
    copying = _copying(batches)
    columns = Contestant("klog.record.columns (Arrow)", cycling(record.columns, batches))

    def check() -> None:
        assert record.validate(batches[0]) == record.columns(batches[0]).num_rows == load.count

    return Contest(
        f"validate {load.name}",
        load.count,
        load.bytes,
        (
            Contestant("klog.record.validate", cycling(record.validate, batches), goal=goal),
            columns if beside_columns else copying,
        ),
        check,
        limit=copying,
    )


def _crc32c(size: int, name: str, *, goal: float | None = None) -> Contest:
    data = noise(size)

    def check() -> None:
        assert crc32c(b"123456789") == google_crc32c.value(b"123456789") == 0xE3069283
        assert crc32c(data) == google_crc32c.value(data)

    return Contest(
        f"crc32c {name}",
        0,
        size,
        (
            Contestant("klog.codec.crc32c", lambda: crc32c(data), goal=goal),
            Contestant("google-crc32c", lambda: google_crc32c.value(data)),
        ),
        check,
    )


FACTORIES: dict[str, Factory] = {
    "encode 100B": lambda tiny, folder: _encode(workload("100B", tiny=tiny)),
    "encode 1KiB": lambda tiny, folder: _encode(workload("1KiB", tiny=tiny)),
    "encode 100B memcpy": lambda tiny, folder: _encode_beside_a_copy(workload("100B", tiny=tiny)),
    "encode 1KiB memcpy": lambda tiny, folder: _encode_beside_a_copy(workload("1KiB", tiny=tiny), goal=0.5),
    "decode 100B": lambda tiny, folder: _decode(workload("100B", tiny=tiny)),
    "decode 1KiB": lambda tiny, folder: _decode(workload("1KiB", tiny=tiny)),
    "decode unread 100B": lambda tiny, folder: _iterate(workload("100B", tiny=tiny)),
    "decode unread 1KiB": lambda tiny, folder: _iterate(workload("1KiB", tiny=tiny)),
    "views 100B": lambda tiny, folder: _views(workload("100B", tiny=tiny)),
    "views 1KiB": lambda tiny, folder: _views(workload("1KiB", tiny=tiny), goal=0.85),
    "validate 100B": lambda tiny, folder: _validate(workload("100B", tiny=tiny), beside_columns=True, goal=1.4),
    "validate 1KiB": lambda tiny, folder: _validate(workload("1KiB", tiny=tiny), beside_columns=False, goal=1.2),
    "crc32c 1KiB": lambda tiny, folder: _crc32c(1 << 10, "1KiB"),
    "crc32c 16KiB": lambda tiny, folder: _crc32c(1 << 14, "16KiB", goal=2),
    "crc32c 1MiB": lambda tiny, folder: _crc32c(1 << 20, "1MiB"),
}
