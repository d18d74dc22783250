"""Other readers and writers of record batches agree with ours."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

from klog.record import decode, encode, iter_records

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
# kafka-python's snappy wants a library with system headers; aiokafka's is the same cramjam as ours.
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
def test_they_read_ours(reader, compression: str | None) -> None:
    data = encode(RECORDS, base_offset=1000, compression=compression) + encode(RECORDS[:3], base_offset=9000)
    assert peer_rows(reader(data)) == our_rows(data)
    assert len(our_rows(data)) == 3003


@pytest.mark.parametrize(("codec", "compression"), CODECS)
def test_we_read_aiokafka(codec: int, compression: str | None) -> None:
    builder = AioBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for n, (key, value, timestamp, headers) in enumerate(RECORDS):
        builder.append(n, timestamp, key, value, headers)
    data = bytes(builder.build())
    assert our_rows(data) == [(n, *record) for n, record in enumerate(RECORDS)]
    assert next(decode(data)).compression == (compression or "none")


@pytest.mark.parametrize(("codec", "compression"), KAFKA_PYTHON_CODECS)
def test_we_read_kafka_python(codec: int, compression: str | None) -> None:
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
