"""Messages as dicts: the same bytes as messages as objects."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptFrame, UnsupportedVersion
from klog.log.directory.checkpoint import encode_uuid as text_of
from klog.protocol import decode, decode_fields, encode, encode_fields, messages, versions_of
from klog.protocol.layout import data_messages, load
from klog.protocol.schema import Struct
from tests.support import wire
from tests.support.memory import left_bytes

VERSIONS = [
    (name, version) for name in data_messages() for version in range(versions_of(name)[0], versions_of(name)[1] + 1)
]
MEMBER = {"client_id": "c", "client_host": "/h", "subscribed_topic_names": []}


def as_dict(message: Any, struct: Struct, version: int, *, ids: bool) -> dict[str, Any]:
    """Return the fields of an object that are in its bytes of this version. ids: return UUIDs as text."""
    found = {}
    for field in struct.fields:
        value = getattr(message, field.name)
        if version not in field.versions or (field.tag is not None and value == getattr(type(message)(), field.name)):
            continue
        of = field.struct

        def one(each: Any, of: Struct | None = of) -> Any:
            if of is not None and each is not None:
                return as_dict(each, of, version, ids=ids)
            return text_of(each) if ids and isinstance(each, uuid.UUID) else each

        found[field.name] = [one(each) for each in value] if isinstance(value, list) else one(value)
    return found


def test_every_version_of_every_message() -> None:
    chance = random.Random(31)
    for name, version in VERSIONS:
        layout = load(name)["data"]
        for _ in range(4):
            message = wire.make(getattr(messages, name), layout, version, chance)
            data = encode(message, version)
            top = layout.section.top
            assert encode_fields(name, version, as_dict(message, top, version, ids=False), b"\0\7") == b"\0\7" + data
            found, after = decode_fields(name, version, b"-" + data + b"slack", 1)
            assert (found, after) == (as_dict(message, top, version, ids=True), len(data) + 1)
            assert encode_fields(name, version, found) == data


def test_a_field_that_is_left_out_has_its_default() -> None:
    for name, version in VERSIONS:
        assert encode_fields(name, version, {}) == encode(getattr(messages, name)(), version)


def test_a_tagged_field_with_its_default_takes_no_bytes() -> None:
    """This also holds if the default is a struct. Null differs from a struct of defaults."""
    name = "ConsumerGroupMemberMetadataValue"
    plain = encode_fields(name, 0, MEMBER)
    for default in ({}, {"session_timeout_ms": 0}, {"supported_protocols": ()}):
        assert encode_fields(name, 0, MEMBER | {"classic_member_metadata": default}) == plain
    null = encode_fields(name, 0, MEMBER | {"classic_member_metadata": None})
    assert null == plain[:-1] + b"\1\0\1\0"  # null is the varint 0 here; in a field without a tag it is the byte -1
    assert decode_fields(name, 0, null)[0]["classic_member_metadata"] is None
    value = {"session_timeout_ms": 0, "supported_protocols": [{"name": "range", "metadata": b"\0"}]}
    found = decode_fields(name, 0, encode_fields(name, 0, MEMBER | {"classic_member_metadata": value}))[0]
    assert found["classic_member_metadata"] == value
    for default in (uuid.UUID(int=0), "A" * 22):
        assert encode_fields("OffsetCommitValue", 4, {"topic_id": default}) == encode_fields("OffsetCommitValue", 4, {})


def test_values_that_a_version_lacks() -> None:
    assert encode_fields("OffsetCommitValue", 0, {"leader_epoch": 7}) == encode_fields("OffsetCommitValue", 0, {})
    with pytest.raises(UnsupportedVersion, match="TransactionLogValue version 0 has no field next_producer_id"):
        encode_fields("TransactionLogValue", 0, {"next_producer_id": 7})
    encode_fields("TransactionLogValue", 0, {"next_producer_id": -1})


@pytest.mark.parametrize(
    ("name", "fields", "error", "text"),
    [
        ("OffsetCommitKey", {"group": 5}, TypeError, "group=5: a str expected"),
        ("OffsetCommitKey", {"group": "\ud800"}, ValueError, "OffsetCommitKey version 0: group: not valid UTF-8"),
        ("OffsetCommitKey", {"group": None}, ValueError, "group: null is not allowed"),
        ("OffsetCommitKey", {"partition": "5"}, TypeError, "partition='5': an int expected"),
        ("OffsetCommitKey", {"partition": 1 << 31}, ValueError, "partition: the integer is out of the range"),
        ("OffsetCommitKey", {"partition": 1 << 64}, ValueError, "partition: the integer is out of the range"),
        ("OffsetCommitKey", {"offset": 5}, TypeError, "OffsetCommitKey has no field 'offset'; it has group, topic"),
        ("OffsetCommitKey", [], TypeError, r"fields=\[\]: a dict expected"),
        ("OffsetCommitKey", None, ValueError, "fields: null is not allowed"),
        ("NoOpRecord", {"x": 5}, TypeError, "NoOpRecord has no field 'x'; it has none"),
        ("GroupMetadataValue", {"members": [{}, 5]}, TypeError, r"members\[1\]=5: a dict expected"),
        ("GroupMetadataValue", {"members": {}}, TypeError, "members={}: a list or a tuple expected"),
        ("GroupMetadataValue", {"members": [{"id": 5}]}, TypeError, r"GroupMetadataValue.*has no field 'id'"),
        ("GroupMetadataValue", {"members": [{"assignment": "x"}]}, TypeError, r"assignment='x': a contiguous buffer"),
        ("TopicRecord", {"topic_id": 5}, TypeError, "topic_id=5: a uuid.UUID, or the 22 characters of an id expected"),
        ("TopicRecord", {"topic_id": "AAAA"}, ValueError, "topic_id='AAAA': the 22 characters of an id expected"),
        ("TopicRecord", {"topic_id": "é" * 22}, ValueError, "the 22 characters of an id expected"),
        ("TopicRecord", {"topic_id": "A" * 21 + "/"}, ValueError, "the 22 characters of an id expected"),
        ("ClientQuotaRecord", {"value": "x"}, TypeError, "value='x': a float expected"),
    ],
)
def test_mistakes(name: str, fields: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        encode_fields(name, 0, fields)


def test_other_mistakes() -> None:
    for name in ("Produce", "Nothing", "OffsetCommit", None, 5, []):
        with pytest.raises(TypeError, match="message=.*the name of a message"):
            decode_fields(name, 0, b"")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedVersion, match="OffsetCommitKey version 1: klog knows versions 0 to 0"):
        decode_fields("OffsetCommitKey", 1, b"")
    with pytest.raises(UnsupportedVersion, match="version 5"):
        encode_fields("OffsetCommitValue", 5, {})
    with pytest.raises(TypeError, match="buffer='x': a contiguous buffer expected"):
        decode_fields("OffsetCommitKey", 0, "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="position=3: the buffer has 2 bytes"):
        decode_fields("OffsetCommitKey", 0, b"12", 3)
    with pytest.raises(ValueError, match="position=-1"):
        decode_fields("OffsetCommitKey", 0, b"12", -1)
    with pytest.raises(ValueError, match="prefix: at most 16 bytes expected, not 17"):
        encode_fields("OffsetCommitKey", 0, {}, bytes(17))


def test_bytes_from_any_buffer() -> None:
    member = {"assignment": memoryview(bytearray(b"abc"))}
    data = encode_fields("GroupMetadataValue", 0, {"members": [member]})
    assert decode_fields("GroupMetadataValue", 0, memoryview(data))[0]["members"][0]["assignment"] == b"abc"


def test_an_error_names_the_damaged_field_and_its_position() -> None:
    members = [{}, {"assignment": b"xyz"}]
    data = encode_fields("GroupMetadataValue", 0, {"protocol_type": "consumer", "members": members})
    with pytest.raises(
        CorruptFrame, match=r"GroupMetadataValue version 0, members\[1\].assignment: the bytes end"
    ) as caught:
        decode_fields("GroupMetadataValue", 0, data[:-1])
    assert (caught.value.field, caught.value.position) == ("members[1].assignment", len(data) - 7)


def test_text_that_is_not_utf8() -> None:
    assert decode_fields("GroupMetadataKey", 0, b"\0\2g\xff") == ({"group": "g\\xff"}, 4)


@given(st.data())
def test_hostile_bytes(data: st.DataObject) -> None:
    """Cut or changed bytes give fields or CorruptFrame, as for objects, except for text that is not UTF-8."""
    name, version = data.draw(st.sampled_from(VERSIONS))
    owner = getattr(messages, name)
    message = wire.make(owner, load(name)["data"], version, random.Random(data.draw(st.integers(0, 99))))
    damaged = bytearray(encode(message, version))
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    fields, mistake = _outcome(lambda: decode_fields(name, version, damaged))
    if mistake is not None:
        assert 0 <= mistake.position <= len(damaged)
        assert _outcome(lambda: decode(owner, version, damaged))[1] is not None
    else:
        _, mistake = _outcome(lambda: decode(owner, version, damaged[: fields[1]]))
        assert mistake is None or "UTF-8" in mistake.reason


def _outcome(call: Callable[[], Any]) -> tuple[Any, Any]:
    try:
        return call(), None
    except CorruptFrame as mistake:
        return None, mistake


def test_nothing_is_leaked() -> None:
    """Objects of failed and of successful calls are freed."""
    member = {"member_id": "m" * 1000, "assignment": b"x" * 1000}
    good = {"members": [member] * 10}
    bad = {"members": [*[member] * 10, 5]}
    data = encode_fields("GroupMetadataValue", 0, good)

    def calls() -> None:
        for _ in range(20):
            decode_fields("GroupMetadataValue", 0, encode_fields("GroupMetadataValue", 0, good))
            with pytest.raises(CorruptFrame):
                decode_fields("GroupMetadataValue", 0, data[:-1])
            with pytest.raises(TypeError):
                encode_fields("GroupMetadataValue", 0, bad)

    assert left_bytes(calls) < 20_000
