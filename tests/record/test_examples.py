"""The worked examples of the format, byte for byte, decoded and encoded. T is 2023-11-14T22:13:20Z."""

import pytest

from klog.record import Record, RecordBatch, TimestampType, decode, encode, iter_records, validate
from klog.record.control import marker

T = 1_700_000_000_000
RECORDS = [(b"k1", b"v1", T, [("h", b"x"), ("n", None)]), (None, b"hello", T + 5)]
PRODUCER = {"leader_epoch": 5, "producer_id": 4000, "producer_epoch": 3, "is_transactional": True}

PLAIN = bytes.fromhex(
    "00 00 00 00 00 00 00 64  00 00 00 4f 00 00 00 05"
    "02 22 77 dd 25 00 00 00  00 00 01 00 00 01 8b cf"
    "e5 68 00 00 00 01 8b cf  e5 68 05 ff ff ff ff ff"
    "ff ff ff ff ff ff ff ff  ff 00 00 00 02 22 00 00"
    "00 04 6b 31 04 76 31 04  02 68 02 78 02 6e 01 16"
    "00 0a 02 01 0a 68 65 6c  6c 6f 00"
)
LZ4 = bytes.fromhex(
    "00 00 00 00 00 00 00 66  00 00 00 5e 00 00 00 05"
    "02 b6 37 36 aa 00 13 00  00 00 01 00 00 01 8b cf"
    "e5 68 00 00 00 01 8b cf  e5 68 05 00 00 00 00 00"
    "00 0f a0 00 03 00 00 00  07 00 00 00 02 04 22 4d"
    "18 60 40 82 1e 00 00 80  22 00 00 00 04 6b 31 04"
    "76 31 04 02 68 02 78 02  6e 01 16 00 0a 02 01 0a"
    "68 65 6c 6c 6f 00 00 00  00 00"
)
ABORT = bytes.fromhex(
    "00 00 00 00 00 00 00 68  00 00 00 42 00 00 00 05"
    "02 21 02 b9 04 00 30 00  00 00 00 00 00 01 8b cf"
    "e5 68 64 00 00 01 8b cf  e5 68 64 00 00 00 00 00"
    "00 0f a0 00 03 ff ff ff  ff 00 00 00 01 20 00 00"
    "00 08 00 00 00 00 0c 00  00 00 00 00 0c 00"
)
EMPTY = bytes.fromhex(
    "00 00 00 00 00 00 00 66  00 00 00 31 00 00 00 05"
    "02 16 72 88 fd 00 10 00  00 00 01 ff ff ff ff ff"
    "ff ff ff 00 00 01 8b cf  e5 68 05 00 00 00 00 00"
    "00 0f a0 00 03 00 00 00  07 00 00 00 00"
)
HORIZON = bytes.fromhex(
    "00 00 00 00 00 00 00 c8  00 00 00 48 00 00 00 05"
    "02 79 a0 df b4 00 40 00  00 00 03 00 00 01 8b d5"
    "0b c7 e8 00 00 01 8b cf  e5 68 14 ff ff ff ff ff"
    "ff ff ff ff ff ff ff ff  ff 00 00 00 02 14 00 bb"
    "ff b2 52 02 02 62 01 00  16 00 a7 ff b2 52 04 02"
    "63 02 33 00"
)


def only(data: bytes) -> RecordBatch:
    (batch,) = decode(data)
    return batch


def test_plain() -> None:
    assert encode(RECORDS, base_offset=100, leader_epoch=5) == PLAIN
    batch = only(PLAIN)
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (100, 101, 102, 2)
    assert (batch.size, batch.magic, batch.crc, batch.compression) == (91, 2, 0x2277DD25, "none")
    assert (batch.timestamp_type, batch.base_timestamp, batch.max_timestamp) == (TimestampType.CREATE_TIME, T, T + 5)
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, -1, -1, -1)
    assert (batch.is_transactional, batch.is_control, batch.control_type, batch.delete_horizon_ms) == (0, 0, None, None)
    assert batch.position == 0
    assert bytes(batch.raw) == PLAIN
    assert len(batch) == 2
    first, second = batch
    assert (first.key, first.value, first.timestamp, first.offset) == (b"k1", b"v1", T, 100)
    assert first.headers == (("h", b"x"), ("n", None))
    assert (first.leader_epoch, first.sequence, first.timestamp_type) == (5, -1, TimestampType.CREATE_TIME)
    assert (second.key, second.value, second.timestamp, second.offset) == (None, b"hello", T + 5, 101)
    assert second.headers == ()


def test_log_append_time() -> None:
    data = encode(
        RECORDS,
        base_offset=100,
        leader_epoch=5,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=T + 9999,
    )
    assert data[21:23].hex() == "0008"
    assert data[35:43].hex() == "0000018bcfe58f0f"
    assert data[17:21].hex() == "f6514e3b"
    assert data[61:] == PLAIN[61:]
    for record in iter_records(data):
        assert record.timestamp == T + 9999
        assert record.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_lz4_in_a_transaction() -> None:
    assert encode(RECORDS, base_offset=102, base_sequence=7, compression="lz4", **PRODUCER) == LZ4
    batch = only(LZ4)
    assert (batch.compression, batch.is_transactional, batch.base_sequence) == ("lz4", True, 7)
    assert [(record.offset, record.sequence) for record in batch] == [(102, 7), (103, 8)]
    assert all(record.is_transactional and record.producer_id == 4000 for record in batch)
    assert [record.value for record in batch] == [b"v1", b"hello"]


@pytest.mark.parametrize(
    ("name", "attributes", "crc", "payload"),
    [
        (
            "gzip",
            "0011",
            "23f93a36",
            "1f8b08000000000000ff5362606060c9366429336461ca60aa60ca631463e06262e4ca48cdc9c9670000e4e4532e1e000000",
        ),
        (
            "snappy",
            "0012",
            "97e081d0",
            "82534e41505059000000000100000001000000201e7422000000046b310476310402680278026e0116000a02010a68656c6c6f00",
        ),
        (
            "zstd",
            "0014",
            "5cf43b10",
            "28b52ffd0058f0000022000000046b310476310402680278026e0116000a02010a68656c6c6f00010000",
        ),
    ],
)
def test_other_codecs_as_kafka_writes_them(name: str, attributes: str, crc: str, payload: str) -> None:
    body = bytes.fromhex(payload)
    length = (61 + len(body) - 12).to_bytes(4, "big")
    data = LZ4[:8] + length + LZ4[12:17] + bytes.fromhex(crc) + bytes.fromhex(attributes) + LZ4[23:61] + body
    assert validate(data) == 2
    batch = only(data)
    assert batch.compression == name
    assert list(batch) == list(only(LZ4))


def test_abort_and_commit_markers() -> None:
    assert encode([(*marker("abort", 12), T + 100)], base_offset=104, is_control=True, **PRODUCER) == ABORT
    commit = encode([(*marker("commit", 12), T + 100)], base_offset=104, is_control=True, **PRODUCER)
    assert commit[17:21].hex() == "d53c6f4c"
    batch = only(ABORT)
    assert (batch.is_control, batch.control_type, batch.base_sequence) == (True, "abort", -1)
    (record,) = batch
    assert (record.is_control, record.control_type, record.timestamp, record.sequence) == (True, "abort", T + 100, -1)
    assert only(commit).control_type == "commit"


def test_batch_emptied_by_compaction() -> None:
    data = encode(
        [], base_offset=102, base_sequence=7, last_offset_delta=1, max_timestamp=T + 5, compression="lz4", **PRODUCER
    )
    assert data == EMPTY
    batch = only(EMPTY)
    assert (batch.count, batch.base_offset, batch.last_offset, batch.next_offset) == (0, 102, 103, 104)
    assert (batch.base_timestamp, batch.max_timestamp, batch.compression) == (-1, T + 5, "none")
    assert list(batch) == list(iter_records(EMPTY)) == []
    assert validate(EMPTY) == 0


def test_delete_horizon() -> None:
    source = encode(
        [(b"a", b"1", T), (b"b", None, T + 10), (b"c", b"3", T + 20), (b"d", b"4", T + 30)], base_offset=200
    )
    kept: list[Record] = list(iter_records(source))[1:3]
    data = encode(
        kept,
        base_offset=200,
        leader_epoch=5,
        delete_horizon_ms=T + 86_401_000,
        last_offset_delta=3,
        keep_offsets=True,
    )
    assert data == HORIZON
    batch = only(HORIZON)
    assert (batch.delete_horizon_ms, batch.base_timestamp, batch.last_offset) == (T + 86_401_000,) * 2 + (203,)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in batch] == [
        (201, b"b", None, T + 10),
        (202, b"c", b"3", T + 20),
    ]


@pytest.mark.parametrize(
    ("name", "crc", "records"),
    [
        (
            "leader_change",
            "725319f0",
            "4400000008000000023000000000000103000000010000000002000200000001000000",
        ),
        ("snapshot_header", "c7ac7804", "2a0000000800000003160000 0000018bcfe568000000"),
        ("snapshot_footer", "8f6608e6", "1a000000080000000406 00000000"),
        ("kraft_version", "a89c5586", "1e00000008000000050a 000000010000"),
    ],
)
def test_kraft_control_batches(name: str, crc: str, records: str) -> None:
    payload = bytes.fromhex(records)
    head = bytes(8) + (61 + len(payload) - 12).to_bytes(4, "big") + bytes.fromhex("00000001 02") + bytes.fromhex(crc)
    tail = "0020 00000000 0000018bcfe56800 0000018bcfe56800 ffffffffffffffff ffff ffffffff 00000001"
    data = head + bytes.fromhex(tail) + payload
    assert validate(data) == 1
    assert only(data).control_type == name
    (record,) = iter_records(data, include_control=True)
    assert record.control_type == name
    assert list(iter_records(data)) == []
