"""Messages as objects, and their bytes: round trips of every version, defaults, and values that a version cannot carry."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import uuid
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptFrame, UnsupportedVersion
from klog.protocol import ApiKey, ErrorCode, decode, decode_data, encode, encode_data, messages
from tests.support import wire

VERSIONS = list(wire.versions())
Produce, Fetch, Metadata = messages.Produce, messages.Fetch, messages.Metadata


def test_every_version_of_every_message_comes_back_equal() -> None:
    chance = random.Random(29)
    for owner, layout, version in VERSIONS:
        for _ in range(4):
            message = wire.make(owner, layout, version, chance)
            assert decode(owner, version, encode(message, version)) == message, (layout.name, version)


@given(st.sampled_from(VERSIONS), st.randoms(use_true_random=False))
def test_a_random_message_comes_back_equal(case: Any, chance: random.Random) -> None:
    owner, layout, version = case
    message = wire.make(owner, layout, version, chance)
    assert decode(owner, version, encode(message, version)) == message


def test_a_message_as_an_object() -> None:
    request = Metadata.Request(topics=None)
    assert request.topics is None and request.allow_auto_topic_creation is True
    assert repr(request) == "Metadata.Request(topics=None)" and request == Metadata.Request(topics=None)
    assert request != Metadata.Request() and request != Fetch.Request() and request != 1
    assert repr(Fetch.Response.Partition(records=memoryview(b"abc"))).endswith("records=<3 bytes>)")
    request.topics = [Metadata.Request.Topic(name="a"), Metadata.Request.Topic(name=None)]
    for twin in (copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert twin == request and twin.topics is not request.topics
    assert Metadata.Request().topics is not Metadata.Request().topics
    with pytest.raises(TypeError, match="Request has no field 'topic'; it has topics, allow"):
        Metadata.Request(topic="a")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        request.topic = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unhashable"):
        hash(request)


def test_names_of_messages() -> None:
    assert {"Produce", "RequestHeader"} <= set(dir(messages)) == set(messages.__all__)
    for name in messages.__all__:
        assert getattr(messages, name).__module__ == "klog.protocol.messages"
    with pytest.raises(AttributeError, match="no attribute 'Telemetry'"):
        _ = messages.Telemetry  # type: ignore[attr-defined]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_objects_of_a_message_are_not_searched_for_garbage_while_they_are_made(enabled: bool) -> None:
    """The searches took five sixths of the time, in which other threads wait."""
    request = Metadata.Request(topics=[Metadata.Request.Topic(name="t")] * 50_000)
    data = encode(request, 9)
    (gc.enable if enabled else gc.disable)()
    try:
        gc.collect()
        before = sum(each["collections"] for each in gc.get_stats())
        found = decode(Metadata.Request, 9, data)
        searches = sum(each["collections"] for each in gc.get_stats()) - before
        assert len(found.topics) == 50_000 and searches <= 3
        with pytest.raises(CorruptFrame):
            decode(Metadata.Request, 9, data[:-1])
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_records_are_views_of_the_input_and_may_be_any_buffer() -> None:
    for records in (b"records", memoryview(b"records"), numpy.frombuffer(b"records", numpy.uint8)):
        topic = Produce.Request.Topic(name="t", partition_data=[Produce.Request.Partition(records=records)])
        data = bytearray(encode(Produce.Request(topic_data=[topic]), 9))
        view = decode(Produce.Request, 9, data).topic_data[0].partition_data[0].records
        assert isinstance(view, memoryview) and view.obj is data and view == b"records"
    wide = decode(Produce.Request, 9, numpy.frombuffer(data, numpy.uint16)).topic_data[0].partition_data[0].records
    assert wide == b"records" and wide.format == "B"


def test_fields_that_a_version_lacks() -> None:
    response = Metadata.Response(brokers=[Metadata.Response.Broker(node_id=1, host="h", port=9092, rack="r")])
    assert decode(Metadata.Response, 0, encode(response, 0)).brokers[0].rack is None  # ignorable
    request = Metadata.Request(allow_auto_topic_creation=False)
    assert encode(request, 4)
    with pytest.raises(UnsupportedVersion, match=r"Metadata.Request version 3 has no field allow_auto_topic_creation"):
        encode(request, 3)
    member = messages.LeaveGroup.Request.Member(member_id="m")
    with pytest.raises(UnsupportedVersion, match="no field members"):
        encode(messages.LeaveGroup.Request(members=[member]), 2)
    with pytest.raises(UnsupportedVersion, match="no field replica_state"):
        encode(Fetch.Request(replica_state=Fetch.Request.ReplicaState(replica_id=1)), 14)
    assert encode(Fetch.Request(replica_state=Fetch.Request.ReplicaState()), 14)


def test_tagged_fields_are_written_if_they_are_not_the_default() -> None:
    partition = Fetch.Response.Partition(current_leader=Fetch.Response.Leader(leader_id=3))
    response = Fetch.Response(responses=[Fetch.Response.Topic(partitions=[partition])])
    plain = Fetch.Response(responses=[Fetch.Response.Topic(partitions=[Fetch.Response.Partition()])])
    tag_1_of_9_bytes = b"\1\1\x09" + b"\0\0\0\3" + b"\xff\xff\xff\xff" + b"\0"
    assert encode(response, 12).startswith(encode(plain, 12)[:-3]) and tag_1_of_9_bytes in encode(response, 12)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"acks": "1"}, "acks='1': an int expected, not str"),
        ({"acks": 1.0}, "acks=1.0: an int expected, not float"),
        ({"acks": None}, "acks=None: an int expected"),
        ({"acks": 1 << 15}, "Produce.Request version 9: acks: the integer is out of the range of its type"),
        ({"timeout_ms": 1 << 70}, "timeout_ms: the integer is out of the range"),
        ({"transactional_id": b"t"}, "transactional_id=b't': a str expected, not bytes"),
        ({"transactional_id": "\ud800"}, "transactional_id: not valid UTF-8"),
        ({"transactional_id": "x" * 40000}, "transactional_id: a length is invalid"),
        ({"topic_data": None}, "topic_data: null is not allowed"),
        ({"topic_data": "topics"}, "topic_data='topics': a list or a tuple expected, not str"),
        ({"topic_data": [1]}, r"topic_data\[0\]=1: Produce.Request.Topic expected, not int"),
        ({"topic_data": [None]}, r"topic_data\[0\]: null is not allowed"),
        ({"topic_data": [Produce.Request.Topic(name=None)]}, r"topic_data\[0\]\.name: null is not allowed"),  # type: ignore[arg-type]
        (
            {"topic_data": [Produce.Request.Topic(partition_data=[Produce.Request.Partition(records="r")])]},
            r"topic_data\[0\]\.partition_data\[0\]\.records='r': a contiguous buffer expected, not str",
        ),
    ],
)
def test_errors_name_the_path_of_a_wrong_value(fields: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        encode(Produce.Request(**fields), 9)


def test_a_long_error_message_is_cut() -> None:
    """Its text may contain what a client has sent, several times or with escapes."""
    Response = messages.CreateTopics.Response
    for text in ("x" * 32_768, "é" * 20_000, "\U0001f600" * 9_000):
        made = Response(topics=[Response.Topic(name="t", error_code=17, error_message=text)])
        (topic,) = decode(Response, 7, encode(made, 7)).topics
        start = topic.error_message.removesuffix("...")
        assert start != topic.error_message and text.startswith(start)
        assert 32_767 - 3 <= len(topic.error_message.encode()) <= 32_767
    for name, message in (("x" * 32_768, ""), ("t", "x" * 32_767)):
        made = Response(topics=[Response.Topic(name=name, error_code=17, error_message=message)])
        if message:
            assert decode(Response, 7, encode(made, 7)) == made
        else:
            with pytest.raises(ValueError, match=r"topics\[0\].name: a length is invalid"):
                encode(made, 7)


def test_other_wrong_values() -> None:
    with pytest.raises(TypeError, match=r"topics\[0\].topic_id='x': a uuid.UUID expected"):
        encode(Metadata.Request(topics=[Metadata.Request.Topic(topic_id="x")]), 12)  # type: ignore[arg-type]
    value = messages.AlterClientQuotas.Request.Op(value="1.5")  # type: ignore[arg-type]
    entry = messages.AlterClientQuotas.Request.Entry(ops=[value])
    with pytest.raises(TypeError, match=r"entries\[0\].ops\[0\].value='1.5': a float expected"):
        encode(messages.AlterClientQuotas.Request(entries=[entry]), 1)
    request = Metadata.Request()
    del request.topics
    with pytest.raises(AttributeError, match="deleted"):
        encode(request, 1)


@pytest.mark.parametrize("wrong", [None, 1, "Metadata", Metadata, Metadata.Request.Topic, Metadata.Request()])
def test_the_message_of_decode_is_a_class_of_messages(wrong: Any) -> None:
    with pytest.raises(TypeError, match="message"):
        decode(wrong, 1, b"")


@pytest.mark.parametrize("wrong", [None, 1, "Metadata", Metadata.Request, Metadata.Request.Topic()])
def test_the_message_of_encode_is_an_object(wrong: Any) -> None:
    with pytest.raises(TypeError, match="message"):
        encode(wrong, 1)


def test_other_arguments() -> None:
    for version in ("1", 1.0, None, True):
        with pytest.raises(TypeError, match="version"):
            encode(Metadata.Request(), version)
    for version in (-1, 14, 1 << 70):
        with pytest.raises(ValueError, match="version"):
            decode(Metadata.Request, version, b"")
    assert encode(Metadata.Request(topics=[]), numpy.int64(1)) == bytes(4)  # type: ignore[arg-type]
    for buffer in (None, "text", 1):
        with pytest.raises(TypeError, match="buffer"):
            decode(Metadata.Request, 1, buffer)  # type: ignore[arg-type]
    for position in (-1, 5, "0"):
        with pytest.raises((TypeError, ValueError), match="position"):
            decode(Metadata.Request, 1, bytes(4), position)  # type: ignore[arg-type]
    assert decode(Metadata.Request, 1, bytes(6), 2) == Metadata.Request()


def test_a_uuid_is_the_one_of_the_standard_library() -> None:
    number = uuid.uuid4()
    topics = [Metadata.Request.Topic(topic_id=number, name=None)]
    read = decode(Metadata.Request, 12, encode(Metadata.Request(topics=topics), 12)).topics
    assert read is not None and read[0].topic_id == number and hash(read[0].topic_id) == hash(number)
    assert str(read[0].topic_id) == str(number) and read[0].topic_id.is_safe is uuid.SafeUUID.unknown


@pytest.mark.parametrize("wrong", [None, b"fifteen bytes..", 5, "sixteen letters."])
def test_the_bytes_of_a_kind_of_uuid_are_checked(wrong: Any) -> None:
    class Odd(uuid.UUID):
        @property
        def bytes(self) -> Any:
            return wrong

    topics = [Metadata.Request.Topic(topic_id=Odd(int=7), name=None)]
    with pytest.raises((TypeError, ValueError), match=r"topics\[0\].topic_id"):
        encode(Metadata.Request(topics=topics), 12)


def test_data_of_consumer_groups_begins_with_its_version() -> None:
    subscription = messages.ConsumerProtocolSubscription(topics=["a"], user_data=b"u", generation_id=7)
    for version in range(4):
        data = encode_data(subscription, version)
        expected = copy.copy(subscription)
        expected.generation_id = 7 if version >= 2 else -1
        assert decode_data(messages.ConsumerProtocolSubscription, data) == (version, expected)
    newer = b"\0\x09" + data[2:] + b"more"
    assert decode_data(messages.ConsumerProtocolSubscription, newer) == (9, subscription)
    with pytest.raises(UnsupportedVersion, match="version -1"):
        decode_data(messages.ConsumerProtocolSubscription, b"\xff\xff" + data[2:])
    for bad in (b"", b"\0"):
        with pytest.raises(CorruptFrame, match="inside the version"):
            decode_data(messages.ConsumerProtocolAssignment, bad)
    for wrong in (None, Metadata.Request, messages.RequestHeader, "x"):
        with pytest.raises(TypeError, match="message="):
            decode_data(wrong, data)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="message="):
            encode_data(wrong, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="buffer="):
        decode_data(messages.ConsumerProtocolAssignment, "x")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedVersion, match="0 to 3"):
        encode_data(subscription, 4)


def test_tables_of_requests_and_errors() -> None:
    assert ApiKey(0) is ApiKey.PRODUCE and ApiKey.PRODUCE.advertised == (0, 13) and ApiKey.PRODUCE.low == 3
    assert ApiKey.FETCH.advertised == (4, 18) and ApiKey.OFFSET_FOR_LEADER_EPOCH.message == "OffsetForLeaderEpoch"
    assert [ApiKey.API_VERSIONS.response_header(v) for v in (0, 3)] == [0, 0]
    assert [ApiKey.METADATA.response_header(v) for v in (8, 9)] == [0, 1]
    assert [ApiKey.METADATA.request_header(v) for v in (8, 9)] == [1, 2]
    assert not ApiKey.OFFSET_DELETE.is_flexible(0) and ApiKey.DESCRIBE_CLUSTER.is_flexible(0)
    assert ErrorCode(3).is_retriable and not ErrorCode.INVALID_TOPIC_EXCEPTION.is_retriable and ErrorCode.NONE == 0
