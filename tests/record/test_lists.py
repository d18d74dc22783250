"""Parallel lists, and records added one by one, encode to the same bytes as tuples."""

import array

import numpy as np
import pytest
from hypothesis import given

from klog.errors import InvalidTimestamp
from klog.record import BatchBuilder, Encoder, Lists, Record, decode, encode
from tests.support.strategies import record_lists

T = 1_700_000_000_000
ROWS = [
    (b"key %d" % n if n % 4 else None, b"v" * (n % 60), T + n * 7 % 50, [("h", b"%d" % n)] * (n % 3))
    for n in range(900)
]
KEYS, VALUES, STAMPS, HEADERS = (list(column) for column in zip(*ROWS, strict=True))


@pytest.mark.parametrize("stamps", [STAMPS, tuple(STAMPS), array.array("q", STAMPS), np.array(STAMPS)], ids=type)
def test_lists_encode_as_tuples(stamps) -> None:
    assert encode(Lists(KEYS, VALUES, stamps, HEADERS)) == encode(ROWS)
    assert encode(Lists(KEYS, VALUES, stamps)) == encode([row[:3] for row in ROWS])
    assert encode(Lists(None, tuple(VALUES), stamps)) == encode([(None, *row[1:3]) for row in ROWS])
    assert encode(Lists(KEYS, VALUES)) == encode([row[:2] for row in ROWS])
    assert len(Lists(KEYS, VALUES)) == 900


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_lists_are_split_into_batches_as_tuples(compression) -> None:
    def groups(records) -> list[bytes]:
        source = Encoder(
            records,
            compression=compression,
            batch_bytes_max=700,
            message_bytes_max=9000,
            timestamp_default=T,
            timestamp_min=0,
            timestamp_max=2 * T,
        )
        return [bytes(group) for group in iter(lambda: source.next_group(3000), None)]

    assert groups(Lists(KEYS, VALUES, array.array("q", STAMPS), HEADERS)) == groups(ROWS)


@given(record_lists)
def test_any_records(rows) -> None:
    keys, values, stamps, headers = (list(column) for column in zip(*rows, strict=True))
    want = encode(rows)
    assert encode(Lists(keys, values, array.array("q", stamps), headers)) == want
    assert encode(Lists(keys, values, stamps, headers)) == want
    builder = BatchBuilder()
    for row in rows:
        builder.append(*row)
    assert bytes(builder.build()) == want


def test_lists_of_different_lengths_or_types_raise() -> None:
    for bad in (
        lambda: Lists([b"k"], []),
        lambda: Lists(None, [b"v"], [1, 2]),
        lambda: Lists(None, [b"v"], array.array("q", [1, 2])),
        lambda: Lists(None, [b"v"], None, []),
    ):
        with pytest.raises(ValueError, match="values, but"):
            bad()
    for stamps in (array.array("i", [1]), array.array("Q", [1]), np.array([1.0]), np.array([1], ">i8"), b"12345678", 5):
        with pytest.raises(TypeError, match="int64"):
            Lists(None, [b"v"], stamps)
    with pytest.raises(TypeError, match=r"view\('int64'\)"):
        Lists(None, [b"v"], np.array([1], "datetime64[ms]"))
    with pytest.raises(TypeError, match="keys must be a list"):
        Lists(b"k", [b"v"])
    with pytest.raises(TypeError, match="values must be a list"):
        Lists(None, iter([b"v"]))


def test_a_list_that_shrinks_during_encoding_raises() -> None:
    values = [b"1", b"2", b"3"]

    class Shrinks:
        def __index__(self) -> int:
            values.clear()
            return T

    with pytest.raises(ValueError, match="changed its length"):
        encode(Lists(None, values, [T, Shrinks(), T]))


def test_errors_name_the_record() -> None:
    with pytest.raises(TypeError, match=r"record 1: the value is str.*\.encode\(\)"):
        encode(Lists(None, [b"v", "text"]))
    with pytest.raises(InvalidTimestamp, match="record 1"):
        encode(Lists(None, [b"v", b"w"], array.array("q", [T, -5])))


# One record at a time -------------------------------------------------------------------------------------------------


def test_a_builder_can_be_reused() -> None:
    builder = BatchBuilder(base_offset=40, compression="lz4", leader_epoch=3, producer_id=9, producer_epoch=1)
    for row in ROWS:
        builder.append(*row)
    assert builder.count == len(builder) == 900
    first = builder.build()
    assert (builder.count, builder.size) == (0, 61)
    assert first.count == 900
    options = {"base_offset": 40, "compression": "lz4", "leader_epoch": 3, "producer_id": 9, "producer_epoch": 1}
    assert bytes(first) == encode(ROWS, **options)
    builder.extend(ROWS[:5])
    builder.append(b"k", memoryview(b"v"), headers=[("h", None)])
    assert bytes(builder.build()) == encode([*ROWS[:5], (b"k", b"v", None, [("h", None)])], **options)
    assert bytes(first) == encode(ROWS, **options)
    with pytest.raises(ValueError, match="without records"):
        builder.build()


def test_a_refused_record_leaves_the_batch_unchanged() -> None:
    builder = BatchBuilder()
    builder.append(b"a", b"1", T)
    for bad in (("text", b"v"), (b"k", b"v", -2), (b"k", b"v", 2**70), (b"k", b"v", T, [("h", 5)]), (b"k", 5)):
        with pytest.raises((TypeError, InvalidTimestamp)):
            builder.append(*bad)
    with pytest.raises(TypeError):
        builder.extend([(b"x", b"y", T + 5), (b"k", "text")])
    builder.append(b"b", b"2", T + 1)
    assert builder.size == len(encode([(b"a", b"1", T), (b"b", b"2", T + 1)]))
    assert bytes(builder.build()) == encode([(b"a", b"1", T), (b"b", b"2", T + 1)])


def test_a_group_of_a_builder_can_be_assigned_offsets() -> None:
    builder = BatchBuilder(base_offset=5)
    builder.extend([Record(b"k", b"v", T)] * 3)
    group = builder.build()
    group.assign(100, 7)
    (batch,) = decode(group)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (100, 102, 7)


def test_a_builder_is_not_reentrant() -> None:
    builder = BatchBuilder()

    def records():
        yield b"k", b"v"
        builder.append(b"in", b"between")

    with pytest.raises(ValueError, match="already executing"):
        builder.extend(records())
    assert builder.count == 0
