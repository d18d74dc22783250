"""error_response() puts one error code into every part of a response that has an error code. Errors reach the client."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker
from klog.broker.error_responses import error_response
from klog.protocol import ApiKey, ErrorCode, decode, encode, messages
from klog.protocol.layout import load
from tests.support.wire import make
from tests.support.wire_client import WireClient

CODE = ErrorCode.NOT_CONTROLLER
VERSIONS = [(api, version) for api in ApiKey for version in range(api.low, api.high + 1)]


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", str(each)))
def test_every_version_of_every_response_can_be_encoded(api: ApiKey, version: int) -> None:
    request = getattr(messages, api.message).Request()
    response = error_response(api, version, request, CODE)
    again = decode(type(response), version, encode(response, version))
    if hasattr(response, "error_code") and response.error_code:
        assert again.error_code in (CODE, 0)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", str(each)))
def test_no_response_is_without_the_error(api: ApiKey, version: int) -> None:
    """A client would take it for a success."""
    chance = random.Random(version)
    for _ in range(20):
        request = make(getattr(messages, api.message).Request, load(api.message)["request"], version, chance)
        response = error_response(api, version, request, CODE)
        if f"error_code={int(CODE)}" in repr(decode(type(response), version, encode(response, version))):
            return
    raise AssertionError(f"in none of 20 responses: {response}")


def test_changes_of_quotas_and_users_get_the_error() -> None:
    Quotas, Scram = messages.AlterClientQuotas.Request, messages.AlterUserScramCredentials.Request
    entity = [Quotas.Entity(entity_type="user", entity_name="ann")]
    answer: Any = error_response(ApiKey.ALTER_CLIENT_QUOTAS, 1, Quotas(entries=[Quotas.Entry(entity=entity)]), CODE)
    (entry,) = decode(type(answer), 1, encode(answer, 1)).entries
    assert (entry.error_code, entry.entity[0].entity_type, entry.entity[0].entity_name) == (CODE, "user", "ann")
    users = Scram(
        deletions=[Scram.Deletion(name="ann"), Scram.Deletion(name="bob")], upsertions=[Scram.Upsertion(name="ann")]
    )
    answer = error_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, users, CODE)
    assert [(each.user, each.error_code) for each in answer.results] == [("ann", CODE), ("bob", CODE)]


def test_each_part_of_a_request_gets_the_error() -> None:
    Produce, Offsets = messages.Produce.Request, messages.OffsetFetch.Request
    request = Produce(
        topic_data=[Produce.Topic(name="t", partition_data=[Produce.Partition(index=index) for index in (3, 5)])]
    )
    found = error_response(ApiKey.PRODUCE, 12, request, CODE).responses  # type: ignore[attr-defined]
    assert [(each.name, [(part.index, part.error_code) for part in each.partition_responses]) for each in found] == [
        ("t", [(3, CODE), (5, CODE)])
    ]
    groups = error_response(ApiKey.OFFSET_FETCH, 8, Offsets(groups=[Offsets.Group(group_id="g")]), CODE).groups  # type: ignore[attr-defined]
    assert [(each.group_id, each.error_code) for each in groups] == [("g", CODE)]
    ids = messages.DeleteGroups.Request(groups_names=["a", "b"])
    results = error_response(ApiKey.DELETE_GROUPS, 2, ids, CODE).results  # type: ignore[attr-defined]
    assert [(each.group_id, each.error_code) for each in results] == [("a", CODE), ("b", CODE)]


def test_an_error_has_room_for_its_text_whatever_the_client_has_sent(tmp_path: Path) -> None:
    """Its message repeats a name of the longest length, or each byte of it as four."""
    Topic = messages.CreateTopics.Request.Topic
    with (
        Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        for name in ("x" * 32_767, "\1" * 30_000):
            topics = [
                Topic(name="a", num_partitions=1, replication_factor=1),
                Topic(name=name, num_partitions=1, replication_factor=1),
            ]
            response = client.call(ApiKey.CREATE_TOPICS, 7, topics=topics, validate_only=True)
            codes = [each.error_code for each in response.topics]
            assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_response_that_cannot_be_encoded_becomes_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A closed connection would be no response, and the client would send the request again and again."""
    Resource = messages.DescribeConfigs.Request.Resource
    with (
        Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        broker.logs.create_topic("t", 1, {"leader.replication.throttled.replicas": ",".join(["1:1"] * 10_000)})
        asked = [Resource(resource_type=2, resource_name="t", configuration_keys=None)]
        (result,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked).results
        assert (result.error_code, result.resource_name) == (ErrorCode.UNKNOWN_SERVER_ERROR, "t")
        assert client.call(ApiKey.API_VERSIONS, 0).error_code == 0
    assert [each.message for each in caplog.records if "request_failed" in each.message]
