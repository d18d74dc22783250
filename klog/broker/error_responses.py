"""A response that has one error wherever it can have one. Kafka: AbstractRequest.getErrorResponse.

The parts of a request that get an error of their own are mirrored: each partition of a Produce request is one of its
response. Responses with an error at the top alone need no entry.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.protocol import ApiKey, messages
from klog.protocol.layout import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klog.protocol import ErrorCode, Message


class _Array(NamedTuple):
    """An array of a response, made of one of the request: fields by name, "" for an entry that is a plain value."""

    to: str
    of: str
    fields: Mapping[str, str]
    inner: _Array | None = None
    error: str = "error_code"


def _named(to: str, of: str, *fields: str, inner: _Array | None = None) -> _Array:
    return _Array(to, of, {field: field for field in fields}, inner)


def _partitions(to: str, of: str, index: str = "partition_index", error: str = "error_code") -> _Array:
    return _Array(to, of, {"partition_index": index}, error=error)


_PARTITIONS = _partitions("partitions", "partitions")
_PRODUCED = _named("partition_responses", "partition_data", "index")
_FETCHED = _partitions("partitions", "partitions", "partition")
_INDEXES = _partitions("partitions", "partition_indexes", "")
_RESOURCES = _named("responses", "resources", "resource_type", "resource_name")
_MIRRORED: dict[ApiKey, tuple[_Array, ...]] = {
    ApiKey.PRODUCE: (_named("responses", "topic_data", "name", "topic_id", inner=_PRODUCED),),
    ApiKey.FETCH: (_named("responses", "topics", "topic", "topic_id", inner=_FETCHED),),
    ApiKey.LIST_OFFSETS: (_named("topics", "topics", "name", inner=_PARTITIONS),),
    ApiKey.METADATA: (_named("topics", "topics", "name", "topic_id"),),
    ApiKey.OFFSET_COMMIT: (_named("topics", "topics", "name", "topic_id", inner=_PARTITIONS),),
    ApiKey.OFFSET_DELETE: (_named("topics", "topics", "name", inner=_PARTITIONS),),
    ApiKey.DELETE_RECORDS: (_named("topics", "topics", "name", inner=_PARTITIONS),),
    ApiKey.TXN_OFFSET_COMMIT: (_named("topics", "topics", "name", inner=_PARTITIONS),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _named("topics", "topics", "topic", inner=_named("partitions", "partitions", "partition")),
    ),
    ApiKey.DESCRIBE_GROUPS: (_Array("groups", "groups", {"group_id": ""}),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_Array("groups", "group_ids", {"group_id": ""}),),
    ApiKey.DELETE_GROUPS: (_Array("results", "groups_names", {"group_id": ""}),),
    ApiKey.CREATE_TOPICS: (_named("topics", "topics", "name"),),
    ApiKey.DELETE_TOPICS: (
        _named("responses", "topics", "name", "topic_id"),
        _Array("responses", "topic_names", {"name": ""}),
    ),
    ApiKey.CREATE_PARTITIONS: (_named("results", "topics", "name"),),
    ApiKey.DESCRIBE_CONFIGS: (_named("results", "resources", "resource_type", "resource_name"),),
    ApiKey.ALTER_CONFIGS: (_RESOURCES,),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_RESOURCES,),
    ApiKey.DESCRIBE_PRODUCERS: (_named("topics", "topics", "name", inner=_INDEXES),),
    ApiKey.DESCRIBE_TRANSACTIONS: (_Array("transaction_states", "transactional_ids", {"transactional_id": ""}),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_named("topics", "topics", "name"),),
    ApiKey.CREATE_ACLS: (_Array("results", "creations", {}),),
    ApiKey.DELETE_ACLS: (_Array("filter_results", "filters", {}),),
}
_ELECTED = _partitions("partition_result", "partitions", "")._replace(fields={"partition_id": ""})
_BY_TOPIC = _partitions("results_by_partition", "partitions", "", "partition_error_code")


def error_response(api: ApiKey, version: int, request: Any, code: ErrorCode) -> Message:
    """The response to a decoded request, with this error for all that it asks for."""
    arrays, at_top = _MIRRORED.get(api, ()), "error_code" in _fields(api)
    if api is ApiKey.FIND_COORDINATOR and version >= 4:
        arrays, at_top = (_Array("coordinators", "coordinator_keys", {"key": ""}),), False
    elif api is ApiKey.OFFSET_FETCH:
        if version >= 8:
            arrays, at_top = (_named("groups", "groups", "group_id"),), False
        else:
            arrays, at_top = (_Array("topics", "topics", {"name": "name"}, _INDEXES),), version >= 2
    elif api is ApiKey.ADD_PARTITIONS_TO_TXN:
        if version < 4:
            arrays = (_Array("results_by_topic_v3_and_below", "v3_and_below_topics", {"name": "name"}, _BY_TOPIC),)
            at_top = False
    elif api is ApiKey.METADATA:
        at_top = version >= 13
    elif api is ApiKey.ELECT_LEADERS:
        arrays, at_top = (
            (_named("replica_election_results", "topic_partitions", "topic", inner=_ELECTED),),
            version >= 1,
        )
    response = getattr(messages, api.message).Response()
    if at_top:
        response.error_code = code
    for array in arrays:
        made = _mirror(api, array, request, code)
        setattr(response, array.to, [*getattr(response, array.to), *made])
    return response  # type: ignore[no-any-return]


def _mirror(api: ApiKey, array: _Array, parent: Any, code: ErrorCode) -> list[Any]:
    made = []
    kind = getattr(getattr(messages, api.message).Response, _structs(api)[array.to])
    for entry in getattr(parent, array.of) or ():
        result = kind()
        for field, name in array.fields.items():
            setattr(result, field, getattr(entry, name) if name else entry)
        if array.inner is None:
            setattr(result, array.error, code)
        else:
            setattr(result, array.inner.to, _mirror(api, array.inner, entry, code))
        made.append(result)
    return made


@cache
def _fields(api: ApiKey) -> frozenset[str]:
    """The fields of a response, without those of its structs."""
    return frozenset(field.name for field in load(api.message)["response"].section.top.fields)


@cache
def _structs(api: ApiKey) -> dict[str, str]:
    """{an array field of a response: the name of its struct}."""
    section = load(api.message)["response"].section
    return {field.name: field.struct.name for struct in section for field in struct.fields if field.struct is not None}
