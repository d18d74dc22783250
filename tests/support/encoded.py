"""Batches of every kind that encode() makes, for comparison with other readers."""

from __future__ import annotations

from klog.record import Record, TimestampType, decode, encode, iter_records
from klog.record.control import marker

T = 1_700_000_000_000
PRODUCER = {"producer_id": 4000, "producer_epoch": 3}
COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")

# Keys and values null, empty, short and long; headers repeated, null, empty, and in other alphabets; falling
# timestamps, -1 for none, the lowest and the highest.
SHAPES = [
    (b"k", b"v", T, []),
    (None, b"no key", T - 5, []),
    (b"no value", None, T + 9, []),
    (None, None, -1, []),
    (b"", b"", 0, [("", b"")]),
    (b"k" * 300, b"v" * 70_000, 2**63 - 1 - T, [("h", b"1"), ("h", b"2"), ("n", None)]),
    (bytes(range(256)), bytes(1000), T, [("ключ 鍵 🔑", "значение".encode()), ("e", b"")]),
    *(
        (b"%d" % n, b"value %d" % n * (n % 40), T + n * 13 % 100, [(f"h{i}", b"x" * i) for i in range(n % 4)])
        for n in range(500)
    ),
]


def _compacted(compression: str | None) -> bytes:
    whole = list(iter_records(encode(SHAPES, base_offset=300)))
    kept = [record for record in whole if record.offset % 3]
    return encode(
        kept,
        base_offset=300,
        compression=compression,
        delete_horizon_ms=T + 86_400_000,
        last_offset_delta=len(SHAPES) - 1,
        keep_offsets=True,
    )


def batches(compression: str | None) -> dict[str, bytes]:
    """The batches by name; each begins at an offset of its own."""
    common = {"compression": compression, "leader_epoch": 7}
    return {
        "plain": encode(SHAPES, base_offset=10, **common),
        "one": encode(SHAPES[:1], base_offset=2**40, **common),
        "without times": encode([Record(b"k", b"v"), (None, b"w")], base_offset=4, **common),
        "idempotent": encode(SHAPES, base_offset=1000, base_sequence=2**31 - 3, **PRODUCER, **common),
        "transactional": encode(SHAPES, base_offset=2000, base_sequence=0, is_transactional=True, **PRODUCER, **common),
        "log append time": encode(
            SHAPES,
            base_offset=3000,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            log_append_time=T + 77,
            **common,
        ),
        "compacted": _compacted(compression),
    }


def control_batches() -> dict[str, bytes]:
    """Control batches, which are never compressed."""

    def end(name: str, **options: object) -> bytes:
        return encode([(*marker(name, 5), T)], is_control=True, is_transactional=True, **PRODUCER, **options)

    empty = {"last_offset_delta": 4, "max_timestamp": T, "base_sequence": 9}
    return {
        "commit": end("commit", base_offset=5000),
        "abort": end("abort", base_offset=5001, leader_epoch=2),
        "abort with a horizon": end("abort", base_offset=5002, delete_horizon_ms=T + 5),
        "empty": encode([], base_offset=6000, **empty, **PRODUCER),
        "empty, transactional": encode([], base_offset=6005, is_transactional=True, **empty, **PRODUCER),
    }


def described(data: bytes) -> list[tuple]:
    """klog's description of the batches."""
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.count,
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
            batch.is_control,
            int(batch.timestamp_type),
            batch.max_timestamp,
            batch.compression,
            [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch],
        )
        for batch in decode(data)
    ]
