"""error_response() puts one error code into every part of a response that has an error code."""

from __future__ import annotations

import pytest

from klog.broker.error_responses import error_response
from klog.protocol import ApiKey, ErrorCode, decode, encode, messages

CODE = ErrorCode.NOT_CONTROLLER
VERSIONS = [(api, version) for api in ApiKey for version in range(api.low, api.high + 1)]


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", str(each)))
def test_every_version_of_every_response_can_be_encoded(api: ApiKey, version: int) -> None:
    request = getattr(messages, api.message).Request()
    response = error_response(api, version, request, CODE)
    again = decode(type(response), version, encode(response, version))
    if hasattr(response, "error_code") and response.error_code:
        assert again.error_code in (CODE, 0)


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
