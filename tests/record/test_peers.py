"""Other readers and writers of record batches agree with klog's."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

from klog.record import decode, encode, iter_records, validate
from tests.support import encoded

T = 1_700_000_000_000
RECORDS = [
    (
        None if n % 5 == 0 else b"key %d" % n,
        None if n % 7 == 0 else b"value %d " % n * (n % 50),
        T + n * 13 % 100,
        [(f"h{k}", b"x" * k) for k in range(n % 4)],
    )
    for n in range(3000)
]
CODECS = [(0, None), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")]
NAMES = [name or "none" for _, name in CODECS]
# kafka-python's snappy needs a library with system headers; aiokafka uses cramjam, as klog does.
KAFKA_PYTHON_CODECS = [(codec, name) for codec, name in CODECS if name != "snappy"]
READERS = [
    *(pytest.param(AioRecords, name, id=f"aiokafka-{name}") for _, name in CODECS),
    *(pytest.param(KafkaPythonRecords, name, id=f"kafka-python-{name}") for _, name in KAFKA_PYTHON_CODECS),
]


def peer_rows(records) -> list[tuple]:
    rows = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        rows += [(r.offset, r.key, r.value, r.timestamp, list(r.headers)) for r in batch]
    return rows


def our_rows(data) -> list[tuple]:
    return [(r.offset, r.key, r.value, r.timestamp, list(r.headers)) for r in iter_records(data)]


@pytest.mark.parametrize(("reader", "compression"), READERS)
def test_peers_read_klogs_batches(reader, compression: str | None) -> None:
    data = encode(RECORDS, base_offset=1000, compression=compression) + encode(RECORDS[:3], base_offset=9000)
    assert peer_rows(reader(data)) == our_rows(data)
    assert len(our_rows(data)) == 3003


@pytest.mark.parametrize(("codec", "compression"), CODECS)
def test_klog_reads_aiokafka(codec: int, compression: str | None) -> None:
    builder = AioBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for n, (key, value, timestamp, headers) in enumerate(RECORDS):
        builder.append(n, timestamp, key, value, headers)
    data = bytes(builder.build())
    assert our_rows(data) == [(n, *record) for n, record in enumerate(RECORDS)]
    assert next(decode(data)).compression == (compression or "none")


@pytest.mark.parametrize(("codec", "compression"), KAFKA_PYTHON_CODECS)
def test_klog_reads_kafka_python(codec: int, compression: str | None) -> None:
    builder = KafkaPythonBuilder(magic=2, compression_type=codec, batch_size=1 << 30)
    for key, value, timestamp, headers in RECORDS:
        builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
    builder.close()
    data = bytes(builder.buffer())
    assert our_rows(data) == [(n, *record) for n, record in enumerate(RECORDS)]


def test_plain_batches_are_the_same_bytes() -> None:
    builder = AioBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for n, (key, value, timestamp, headers) in enumerate(RECORDS):
        builder.append(n, timestamp, key, value, headers)
    theirs = bytes(builder.build())
    ours = encode(RECORDS)
    assert ours[61:] == theirs[61:]
    assert ours[21:61] == theirs[21:61]


# Every kind of batch --------------------------------------------------------------------------------------------------


def peer_description(batch) -> tuple:
    """The part of described() that peers return: neither counts records, and aiokafka hides the leader epoch and the
    last sequence. A record's timestamp is -1 or None if it has none."""
    stamped = batch.timestamp_type == 1
    return (
        batch.base_offset,
        batch.base_offset + batch.last_offset_delta,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        bool(batch.is_transactional),
        bool(batch.is_control_batch),
        int(stamped),
        batch.max_timestamp,
        batch.compression_type,
        [(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, list(r.headers)) for r in batch],
    )


@pytest.mark.parametrize(("reader", "compression"), READERS)
def test_every_kind_of_batch(reader, compression: str | None) -> None:
    kinds = {**encoded.batches(compression), **({} if compression else encoded.control_batches())}
    for name, data in kinds.items():
        assert validate(data) == sum(batch.count for batch in decode(data))
        (ours,) = encoded.described(data)
        mine = (*ours[:2], *ours[4:11], NAMES.index(ours[11]), ours[12])
        theirs = reader(data).next_batch()
        assert theirs.validate_crc(), name
        assert peer_description(theirs) == mine, name
