import copy
import dis
import pickle
import sys
from typing import Any

import pytest

from klog.errors import InvalidTimestamp
from klog.record import Record, TimestampType, decode, encode, iter_records


def test_constructing_a_record() -> None:
    record = Record(b"k", None, headers=[("h", b"1"), ("h", None)])
    assert (record.key, record.value, record.timestamp) == (b"k", None, -1)
    assert record.headers == (("h", b"1"), ("h", None))
    assert (record.offset, record.leader_epoch, record.producer_id) == (-1, -1, -1)
    assert (record.producer_epoch, record.sequence, record.control_type) == (-1, -1, None)
    assert record.timestamp_type is TimestampType.CREATE_TIME
    assert not record.is_transactional
    assert not record.is_control


def test_a_record_without_a_timestamp_has_minus_one() -> None:
    assert Record(b"k", b"v").timestamp == Record(b"k", b"v", -1).timestamp == -1


def test_buffers_become_bytes() -> None:
    record = Record(bytearray(b"k"), memoryview(b"value")[1:3], headers=[["h", bytearray(b"x")]])
    assert (type(record.key), record.key) == (bytes, b"k")
    assert (type(record.value), record.value) == (bytes, b"al")
    assert record.headers == (("h", b"x"),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("k", b"v"), r"key must be bytes or None, not str; use \.encode\(\)"),
        ((b"k", "v"), r"value must be bytes or None, not str; use \.encode\(\)"),
        ((b"k", 5), "value must be bytes or None, not int"),
        ((b"k", b"v", 1.5), "timestamp must be an int of milliseconds or None, not float"),
        ((b"k", b"v", "now"), "timestamp must be an int"),
        ((b"k", b"v", None, [b"h"]), "a header must be a pair"),
        ((b"k", b"v", None, [(b"h", b"1")]), "a header key must be str, not bytes"),
        ((b"k", b"v", None, [("h", "1")]), r"a header value must be bytes or None, not str; use \.encode\(\)"),
    ],
)
def test_wrong_types(arguments, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Record(*arguments)


def test_timestamp_past_64_bits() -> None:
    with pytest.raises(InvalidTimestamp, match="64 bits"):
        Record(b"k", b"v", 2**63)


def test_a_record_does_not_change() -> None:
    record = Record(b"k", b"v")
    for name in ("key", "value", "timestamp", "headers", "offset"):
        with pytest.raises(AttributeError):
            setattr(record, name, None)
    with pytest.raises(AttributeError):
        record.other = 1


@pytest.mark.parametrize("record", [Record(b"k", b"v"), *iter_records(encode([(b"k", b"v", 1)]))])
def test_key_value_and_headers_are_read_without_a_call(record: Record) -> None:
    """CPython replaces the lookup of a member slot by a load from the object: LOAD_ATTR_SLOT."""

    def read(record: Record) -> None:
        for _ in range(100):
            record.key, record.value, record.headers  # noqa: B018

    read(record)
    specialised = [i.opname for i in dis.get_instructions(read, adaptive=True) if i.opname.startswith("LOAD_ATTR")]
    assert specialised == ["LOAD_ATTR_SLOT"] * 3


def test_a_record_that_was_not_initialised_has_no_fields() -> None:
    record = Record.__new__(Record)
    for use in (repr, hash, pickle.dumps, lambda record: record.key, lambda record: encode([record])):
        with pytest.raises(AttributeError):
            use(record)


def test_no_class_can_be_derived_from_record() -> None:
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Derived", (Record,), {})


def test_records_that_are_read_leave_no_memory() -> None:
    """Freed records are used again, with new content."""
    if not sys.getallocatedblocks():
        pytest.skip("needs: Python's own allocator, which counts its blocks")
    data = encode([(b"key%d" % n, b"value%d" % n, n, [("h", b"x")] * (n % 3)) for n in range(3000)])
    for lazy in (False, True):
        for _ in range(3):
            assert [r.key for r in iter_records(data, lazy=lazy)] == [b"key%d" % n for n in range(3000)]
            held = list(iter_records(data, lazy=lazy))
            assert [(r.value, len(r.headers)) for r in held] == [(b"value%d" % n, n % 3) for n in range(3000)]
            before = sys.getallocatedblocks()
            del held
        assert sys.getallocatedblocks() < before
    before = sys.getallocatedblocks()
    for _ in range(10):
        for lazy in (False, True):
            list(iter_records(data, lazy=lazy))
    assert sys.getallocatedblocks() - before < 100


def test_records_are_equal_in_what_both_know() -> None:
    one, two = Record(b"k", b"v", 5, [("h", b"1")]), Record(b"k", b"v", 5, [("h", b"1")])
    assert one == two and hash(one) == hash(two)
    assert one != Record(b"k", b"v", 6, [("h", b"1")]) and one != Record(b"k", b"v", 5) and one != (b"k", b"v")
    assert repr(one) == "Record(key=b'k', value=b'v', timestamp=5, headers=(('h', b'1'),))"
    assert one == Record(b"k", b"v", headers=[("h", b"1")]) == Record(b"k", b"v", -1, [("h", b"1")])


def test_a_record_that_was_read_knows_every_field() -> None:
    rows = [(b"k", b"v", 5)] * 2
    first, second = iter_records(encode(rows))
    made = Record(b"k", b"v")
    assert made == first and made == second and first != second and {first, second, made} == {first, second}
    assert first == Record(b"k", b"v", 5) != second.__class__(b"k", b"w") and first != Record(b"k", b"v", 6)
    (without_time,) = iter_records(encode([(b"k", b"v", -1)]))
    assert without_time != Record(b"k", b"v", 5) and without_time == made

    def other(**fields: Any) -> Record:
        return next(iter(iter_records(encode(rows, **fields))))

    assert first == other()
    for changed in (
        {"base_offset": 0, "leader_epoch": 3},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
        {"is_transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
        {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": 5},
    ):
        assert first != other(**changed) and made == other(**changed)


def test_the_origin_of_a_record() -> None:
    data = encode([(b"k", b"v", 5)])
    (nowhere,), (here,), (there,) = (iter_records(data, origin=origin) for origin in (None, ("t", 1), ("t", 2)))
    assert [(record.topic, record.partition) for record in (nowhere, here, there)] == [(None, None), ("t", 1), ("t", 2)]
    assert nowhere == here and nowhere == there and here != there and Record(b"k", b"v").topic is None
    (batch,) = decode(data, origin=("u", 3))
    (lazy,) = iter_records(data, origin=("u", 3), lazy=True)
    for record in (*batch, lazy, pickle.loads(pickle.dumps(lazy)), copy.copy(lazy)):
        assert (record.topic, record.partition) == ("u", 3)
    with pytest.raises(AttributeError):
        here.topic = "x"  # type: ignore[misc]


def test_pickle_keeps_every_field() -> None:
    data = encode(
        [(b"k", None, 5, [("h\udcff", None)])], producer_id=7, producer_epoch=1, base_sequence=9, base_offset=3
    )
    (read,) = iter_records(data)
    for record in (read, Record(b"k", b"v"), Record(None, None, -1)):
        again = pickle.loads(pickle.dumps(record))
        assert again == record
        assert again.timestamp == record.timestamp
        assert (again.sequence, again.offset, again.headers) == (record.sequence, record.offset, record.headers)


def test_a_pickle_of_something_else_is_refused() -> None:
    rebuild, fields = Record(b"k", b"v").__reduce__()
    for headers in (None, 5, [("h", b"x")]):
        with pytest.raises(TypeError, match="headers"):
            rebuild(*fields[:2], headers, *fields[3:])


def test_invalid_utf8_in_header_keys_round_trips() -> None:
    (read,) = iter_records(encode([(None, b"v", 0, [("a\udcff\udc80b", b"1")])]))
    assert read.headers == (("a\udcff\udc80b", b"1"),)
    assert read.headers[0][0].encode("utf-8", "surrogateescape") == b"a\xff\x80b"
    assert encode([read]) == encode([(None, b"v", 0, [("a\udcff\udc80b", b"1")])])


def test_sequences_wrap() -> None:
    data = encode([(None, b"v", 0)] * 4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert [record.sequence for record in iter_records(data)] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_create_time_may_wrap_as_in_java() -> None:
    data = encode([(None, b"v", 2**63 - 1)], base_timestamp=-10)
    assert [record.timestamp for record in iter_records(data)] == [2**63 - 1]
