"""A fault with a topic matches each request that names this topic, in each version of each API, and no other request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from klog.protocol import ApiKey, ErrorCode, Message, encode, messages
from klog.protocol.layout import load
from klog.protocol.schema import ALWAYS, Struct
from klog.testing import TestBroker
from tests.support.wire_client import WireClient

# The fields that Kafka's schemas mark with "entityType": "topicName", and the fields with the id of a topic. This list is
# written by hand. A resource is a topic if its type is 2.
NAMES_TOPICS: dict[ApiKey, tuple[str, ...]] = {
    ApiKey.PRODUCE: ("topic_data.name", "topic_data.topic_id"),
    ApiKey.FETCH: ("topics.topic", "topics.topic_id"),
    ApiKey.LIST_OFFSETS: ("topics.name",),
    ApiKey.METADATA: ("topics.name", "topics.topic_id"),
    ApiKey.OFFSET_COMMIT: ("topics.name", "topics.topic_id"),
    ApiKey.OFFSET_FETCH: ("topics.name", "groups.topics.name", "groups.topics.topic_id"),
    ApiKey.CREATE_TOPICS: ("topics.name",),
    ApiKey.DELETE_TOPICS: ("topics.name", "topics.topic_id", "topic_names"),
    ApiKey.DELETE_RECORDS: ("topics.name",),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics.topic",),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("transactions.topics.name", "v3_and_below_topics.name"),
    ApiKey.WRITE_TXN_MARKERS: ("markers.topics.name",),
    ApiKey.TXN_OFFSET_COMMIT: ("topics.name",),
    ApiKey.DESCRIBE_ACLS: ("resource_name_filter",),
    ApiKey.CREATE_ACLS: ("creations.resource_name",),
    ApiKey.DELETE_ACLS: ("filters.resource_name_filter",),
    ApiKey.DESCRIBE_CONFIGS: ("resources.resource_name",),
    ApiKey.ALTER_CONFIGS: ("resources.resource_name",),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("dirs.topics.name",),
    ApiKey.DESCRIBE_LOG_DIRS: ("topics.topic",),
    ApiKey.CREATE_PARTITIONS: ("topics.name",),
    ApiKey.ELECT_LEADERS: ("topic_partitions.topic",),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("resources.resource_name",),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("topics.name",),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("topics.name",),
    ApiKey.OFFSET_DELETE: ("topics.name",),
    ApiKey.DESCRIBE_QUORUM: ("topics.topic_name",),
    ApiKey.DESCRIBE_PRODUCERS: ("topics.name",),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("subscribed_topic_names", "topic_partitions.topic_id"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("topics.name",),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("subscribed_topic_names",),
    ApiKey.SHARE_FETCH: ("topics.topic_id",),
    ApiKey.SHARE_ACKNOWLEDGE: ("topics.topic_id",),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("groups.topics.topic_name",),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("topics.topic_name",),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("topics.topic_name",),
}
ERROR = 9  # REPLICA_NOT_AVAILABLE


def paths(struct: Struct, version: int, before: str = "") -> Iterator[str]:
    """Yield the path of each field that a version has, except cursors and the topics that a fetch session drops."""
    for field in struct.fields:
        if field.versions is not ALWAYS and version not in field.versions:
            continue
        if field.name in ("forgotten_topics_data", "cursor"):
            continue
        yield f"{before}{field.name}"
        if field.struct is not None:
            yield from paths(field.struct, version, f"{before}{field.name}.")


CASES = [
    (api, version, path)
    for api, names in NAMES_TOPICS.items()
    for version in range(api.low, api.high + 1)
    for path in names
    if path in set(paths(load(api.message)["request"].section.top, version))
    # Metadata refuses ids before version 12, as Kafka does
    if (api, path) != (ApiKey.METADATA, "topics.topic_id") or version >= 12
]


def filled(kind: Any, struct: Struct, path: str, topic: Any) -> Any:
    """Return a request with one entry in each array of the path, the topic at its end, and partition 0 next to it."""
    name, _, rest = path.partition(".")
    made = kind()
    for each in ("resource_type", "resource_type_filter"):
        if hasattr(made, each):
            setattr(made, each, 2)
    for field in struct.fields:
        if field.name == name:
            value = filled(getattr(ROOTS[-1], field.struct.name), field.struct, rest, topic) if field.struct else topic
            setattr(made, name, [value] if field.is_array else value)
        elif not rest and field.is_array and "partition" in field.name:
            entry: Any = 0 if field.struct is None else getattr(ROOTS[-1], field.struct.name)()
            setattr(made, field.name, [entry])
    return made


ROOTS: list[Any] = []


def request_of(api: ApiKey, path: str, topic: Any) -> Any:
    """Return a request that names a topic in one field."""
    ROOTS.append(getattr(messages, api.message).Request)
    try:
        return filled(ROOTS[-1], load(api.message)["request"].section.top, path, topic)
    finally:
        ROOTS.pop()


def codes(message: Any) -> Iterator[int]:
    """Yield all error codes in a response."""
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from codes(each)


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker(topics=["orders", "other"]) as b:
        yield b


@pytest.mark.parametrize(("api", "version", "path"), CASES, ids=lambda each: getattr(each, "name", str(each)))
def test_a_fault_of_a_topic_matches_requests_that_name_it(
    broker: TestBroker, api: ApiKey, version: int, path: str
) -> None:
    other = broker.watch(api, topic="other")
    # Other errors of these two are those of the partitions of a valid request: test_share_faults.
    is_of_share = api in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED if is_of_share else ERROR
    fault = broker.inject(api, topic="orders", error=error)
    topic: str | uuid.UUID = "orders"
    if path.endswith("topic_id"):
        topic = broker.logs.topic_id("orders")
    request = request_of(api, path, topic)
    if api is ApiKey.PRODUCE:
        request.acks = -1
    encode(request, version)
    with WireClient(broker.bootstrap_servers) as client:
        client.send(api, version, request)
        response = client.receive(api, version)
    assert (fault.hits, other.hits) == (1, 0)
    assert fault.requests[0].partitions[0][0] == "orders"
    assert error in set(codes(response))
    broker.clear_faults()


def test_no_field_that_may_name_a_topic_is_missing_above() -> None:
    words = ("topic", "resource_name")
    known = {(api, path) for api, names in NAMES_TOPICS.items() for path in names}
    for api in ApiKey:
        for version in range(api.low, api.high + 1):
            for path in paths(load(api.message)["request"].section.top, version):
                name = path.rpartition(".")[2]
                of_topic = name == "name" and "topic" in path and "configs" not in path
                if (name.endswith(("topic", "topic_id", "topic_name", "topic_names")) or of_topic) or (
                    name.startswith(words[1])
                ):
                    assert (api, path) in known, (api, version, path)


@pytest.mark.parametrize(("api", "version"), [(ApiKey.METADATA, 0), (ApiKey.METADATA, 9), (ApiKey.OFFSET_FETCH, 8)])
def test_a_request_for_all_topics_asks_for_each(broker: TestBroker, api: ApiKey, version: int) -> None:
    watch = broker.watch(api, topic="orders")
    Offsets = messages.OffsetFetch.Request
    fields: dict[str, Any] = (
        {"topics": [] if version == 0 else None}
        if api is ApiKey.METADATA
        else {"groups": [Offsets.Group(group_id="g", topics=None)]}
    )
    with WireClient(broker.bootstrap_servers) as client:
        client.call(api, version, **fields)
    assert watch.hits == 1
    watch.stop()
