"""Protobuf messages become Arrow structs, with and without Confluent's framing."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from klog.decode import ConfluentProtobufDecoder, Protobuf

F = descriptor_pb2.FieldDescriptorProto
HEADER = b"\0\0\0\0\x07"


def descriptors() -> bytes:
    """Return the descriptors of t.proto: message First {}; message M with a field of every kind; message Loop {Loop loop = 1;}."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=2)
    colour.value.add(name="AZURE", number=2)  # an alias
    colour.options.allow_alias = True
    file.message_type.add(name="First")
    m = file.message_type.add(name="M")
    m.nested_type.add(name="Inner").field.add(name="x", number=1, type=F.TYPE_UINT32, label=F.LABEL_OPTIONAL)
    entry = m.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_MESSAGE, type_name=".t.M.Inner", label=F.LABEL_OPTIONAL)
    fields: list[tuple[str, int, str, bool]] = [
        ("id", F.TYPE_SINT64, "", False),
        ("size", F.TYPE_FIXED64, "", False),
        ("tags", F.TYPE_STRING, "", True),
        ("colour", F.TYPE_ENUM, ".t.Colour", False),
        ("at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
        ("inner", F.TYPE_MESSAGE, ".t.M.Inner", True),
        ("counts", F.TYPE_MESSAGE, ".t.M.CountsEntry", True),
        ("wrapped", F.TYPE_MESSAGE, ".google.protobuf.Int64Value", False),
        ("first", F.TYPE_MESSAGE, ".t.First", False),
        ("flag", F.TYPE_BOOL, "", False),
    ]
    for number, (name, kind, type_name, repeated) in enumerate(fields, 1):
        label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
        m.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=label)  # type: ignore[arg-type]
    m.oneof_decl.add(name="choice")
    m.field.add(name="a", number=20, type=F.TYPE_BYTES, label=F.LABEL_OPTIONAL, oneof_index=0)
    m.field.add(name="b", number=21, type=F.TYPE_DOUBLE, label=F.LABEL_OPTIONAL, oneof_index=0)
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="loop", number=1, type=F.TYPE_MESSAGE, type_name=".t.Loop", label=F.LABEL_OPTIONAL)
    found = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.add().CopyFrom(file)
    return found.SerializeToString()


DESCRIPTORS = descriptors()
DECODER = ConfluentProtobufDecoder(DESCRIPTORS, "t.M")


def message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.M"))


M = message_class()


def full() -> Any:
    message = M(id=-5, size=2**64 - 1, tags=["x", "y"], colour=2, a=b"1", flag=True)
    message.at.FromJsonString("2020-01-01T00:00:00.123456789Z")
    message.inner.add(x=7)
    message.counts[3].x = 9
    message.wrapped.value = 0
    return message


def decode(*values: bytes | None, decoder: Any = DECODER) -> tuple[list[Any], dict[int, str]]:
    array, bad = decoder.decode(pa.array(values, pa.binary()))
    array.validate(full=True)
    assert array.type == decoder.type
    return decoder.objects(array), bad


def framed(message: Any, indexes: bytes = b"\x02\x02") -> bytes:
    """Frame a message. M is the second message of its file: the path has one index, 1; both numbers are zigzag."""
    return HEADER + indexes + bytes(message.SerializeToString())


def test_every_kind_of_field() -> None:
    assert DECODER.type == pa.struct(
        [
            ("id", pa.int64()),
            ("size", pa.uint64()),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("colour", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("inner", pa.list_(pa.field("element", pa.struct([("x", pa.uint32())])))),
            ("counts", pa.map_(pa.int32(), pa.struct([("x", pa.uint32())]))),
            ("wrapped", pa.int64()),
            ("flag", pa.bool_()),
            ("a", pa.binary()),
            ("b", pa.float64()),
        ]
    )
    rows, bad = decode(framed(full()), None, framed(M(colour=9, b=2.5)))
    assert rows == [
        {
            "id": -5,
            "size": 2**64 - 1,
            "tags": ["x", "y"],
            "colour": "BLUE",
            "at": datetime.datetime(2020, 1, 1, 0, 0, 0, 123456, datetime.UTC),
            "inner": [{"x": 7}],
            "counts": {3: {"x": 9}},
            "wrapped": 0,
            "flag": True,
            "a": b"1",
            "b": None,
        },
        None,
        {
            **dict.fromkeys(("at", "wrapped", "a")),
            "id": 0,
            "size": 0,
            "tags": [],
            "colour": "9",
            "inner": [],
            "counts": {},
            "flag": False,
            "b": 2.5,
        },
    ]
    assert bad == {}


def test_bad_values_have_a_reason() -> None:
    good = framed(full())
    late = M()
    late.at.seconds = 2**62
    values = [good[:-1], framed(full(), b"\0"), HEADER, b"", b"\1" + good[1:], HEADER + b"\x80" * 9, HEADER + b"\x02"]
    rows, bad = decode(*values, framed(late), good, HEADER + b"\x02\x02\x1a\x01\xff")
    assert [index for index, row in enumerate(rows) if row is None] == sorted(bad) == [*range(8), 9]
    assert "is cut" in bad[0] and "name another message; t.M has [1]" in bad[1] and "as Confluent's format" in bad[2]
    assert "more than 5 bytes" in bad[5] and "are cut" in bad[6]


def test_the_first_message_has_a_short_form_and_nested_ones_a_path() -> None:
    inner = ConfluentProtobufDecoder(DESCRIPTORS, "t.M.Inner")
    assert decode(HEADER + b"\x04\x02\x00\x08\x05", decoder=inner) == ([{"x": 5}], {})
    alone = Protobuf(timestamp_pb2.Timestamp).decoder("t-value")  # the first of its file
    assert decode(HEADER + b"\0\x08\x05", HEADER + b"\x02\0\x08\x05", decoder=alone)[1] == {}


def test_a_class_and_a_descriptor_set_are_the_same() -> None:
    for each in (Protobuf(M, framing="none"), Protobuf("t.M", DESCRIPTORS, "none")):
        decoder = pickle.loads(pickle.dumps(each.decoder("t-value")))
        assert decoder.type == DECODER.type
        assert decode(full().SerializeToString(), b"", decoder=decoder)[0][0]["id"] == -5


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("t.First", DESCRIPTORS, "t.First has no fields"),
        ("t.Loop", DESCRIPTORS, "loop is recursive: t.Loop contains itself"),
        ("t.None", DESCRIPTORS, "'t.None' cannot be made from the descriptors"),
        ("t.M", b"\xff", "'t.M' cannot be made from the descriptors"),
    ],
)
def test_messages_without_a_type(name: str, data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Protobuf(name, data).decoder("t-value")


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="message='t.M': a message class; or its full name, with descriptors"):
        Protobuf("t.M")
    with pytest.raises(TypeError, match="descriptors=.*bytes, or None, expected"):
        Protobuf("t.M", "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="framing='x': choose 'confluent' or 'none'"):
        Protobuf(M, framing="x")  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=60).map(lambda data: HEADER + b"\x02\x02" + data) | st.binary(), max_size=4))
def test_any_bytes_are_a_row_or_bad(values: list[bytes]) -> None:
    rows, bad = decode(*values)
    assert {index for index, row in enumerate(rows) if row is None} == set(bad)
