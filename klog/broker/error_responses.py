"""A response that has one error wherever it can have one. Kafka: AbstractRequest.getErrorResponse.

The parts of a request that get an error of their own are mirrored: each partition of a Produce request is one of its
response. Responses with an error at the top alone need no entry.

divide() and join() are for an error of some topics or partitions alone: the rest of the request is handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol import ApiKey, ErrorCode, messages
from klog.protocol.layout import load
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.protocol import Message
    from klog.protocol.schema import Struct


class _Array(NamedTuple):
    """An array of a response, made of one of the request: fields by name, "" for an entry that is a plain value. error:
    the field with the error of an entry, which the innermost array has that has one; "" for none."""

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
_ENTITIES = _named("entity", "entity", "entity_type", "entity_name")._replace(error="")
_MARKED = _named("topics", "topics", "name", inner=_INDEXES)
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
    ApiKey.SHARE_GROUP_DESCRIBE: (_Array("groups", "group_ids", {"group_id": ""}),),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (_named("groups", "groups", "group_id"),),
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
    ApiKey.WRITE_TXN_MARKERS: (_named("markers", "markers", "producer_id", inner=_MARKED),),
    ApiKey.CREATE_ACLS: (_Array("results", "creations", {}),),
    ApiKey.DELETE_ACLS: (_Array("filter_results", "filters", {}),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_Array("entries", "entries", {}, inner=_ENTITIES),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        _Array("results", "deletions", {"user": "name"}),
        _Array("results", "upsertions", {"user": "name"}),
    ),
}
_NULL_NAMES = 12  # the first version of a Metadata response in which a topic may have an id alone
_ELECTED = _partitions("partition_result", "partitions", "")._replace(fields={"partition_id": ""})
_BY_TOPIC = _partitions("results_by_partition", "partitions", "", "partition_error_code")
_MOVED = _Array("results", "topics", {"topic_name": "name"}, _partitions("partitions", "partitions", ""))
_FETCHED_OFFSETS = _named("topics", "topics", "name", inner=_INDEXES)
_FETCHED_OFFSETS_OF_GROUP = _named("topics", "topics", "name", "topic_id", inner=_INDEXES)
# Errors that are those of a Fetch session, and have no partitions.
_OF_SESSION = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
# Errors of an OffsetFetch that are those of partitions; all others are those of the group.
_OF_OFFSETS = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)
# The responses with an error for each topic or partition that has nothing to do with the others.
_SEPARATE = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.DELETE_RECORDS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    )
)


def error_response(api: ApiKey, version: int, request: Any, code: ErrorCode) -> Message:
    """The response to a decoded request, with this error for all that it asks for."""
    arrays, at_top = _MIRRORED.get(api, ()), any(field.name == "error_code" for field in _top(api).fields)
    if api is ApiKey.FIND_COORDINATOR and version >= 4:
        arrays, at_top = (_Array("coordinators", "coordinator_keys", {"key": ""}),), False
    elif api is ApiKey.FETCH and code in _OF_SESSION:
        arrays = ()
    elif api is ApiKey.OFFSET_FETCH:
        if version >= 8:
            names_all = code in _OF_OFFSETS and all(group.topics for group in request.groups)
            inner = _FETCHED_OFFSETS_OF_GROUP if names_all else None
            arrays, at_top = (_named("groups", "groups", "group_id", inner=inner),), False
        else:
            arrays, at_top = (_FETCHED_OFFSETS,), version >= 2 and not (code in _OF_OFFSETS and request.topics)
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
    parents = [request]
    if api is ApiKey.ALTER_REPLICA_LOG_DIRS:
        arrays, parents = (_MOVED,), request.dirs
    elif api is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        response.results = [messages.DescribeLogDirs.Response.Dir(error_code=code)]
    for array in arrays:
        made = [each for parent in parents for each in _mirror(api, _top(api), array, parent, code)]
        before = list(getattr(response, array.to))
        setattr(response, array.to, before + [each for each in made if each not in before])
    if api is ApiKey.METADATA and version < _NULL_NAMES:
        for topic in response.topics:
            topic.name = topic.name or ""
    return response  # type: ignore[no-any-return]


def divide(api: ApiKey, request: Any, is_met: Callable[[Any, Any], bool]) -> Message | None:
    """Take topics and partitions out of a request. is_met: of a topic of it, and a partition of that, None for an API
    of topics. Returns a request with those alone. None if all would be taken, or none, or if errors concern the whole
    request: then the request is as before."""
    from copy import copy

    if api not in _SEPARATE:
        return None
    array = next((each for each in _MIRRORED[api] if getattr(request, each.of)), None)
    if array is None:
        return None
    met: list[Any] = []
    rest: list[Any] = []
    for topic in getattr(request, array.of):
        if array.inner is None:
            (met if is_met(topic, None) else rest).append(topic)
            continue
        for into, wanted in ((met, True), (rest, False)):
            partitions = [each for each in getattr(topic, array.inner.of) if is_met(topic, each) is wanted]
            if partitions:
                part = copy(topic)
                setattr(part, array.inner.of, partitions)
                into.append(part)
    if not (met and rest):
        return None
    setattr(request, array.of, rest)
    return type(request)(**{array.of: met})  # type: ignore[no-any-return]


def join(api: ApiKey, response: Any, other: Any) -> None:
    """Add the topics and partitions of another response, for the other part of a request."""
    for array in _MIRRORED[api]:
        topics = list(getattr(response, array.to))
        known = {tuple(getattr(each, field) for field in array.fields): each for each in topics}
        for topic in getattr(other, array.to):
            same = known.get(tuple(getattr(topic, field) for field in array.fields))
            if same is None or array.inner is None:
                topics.append(topic)
            else:
                to = array.inner.to
                setattr(same, to, [*getattr(same, to), *getattr(topic, to)])
        setattr(response, array.to, topics)


def _mirror(api: ApiKey, struct: Struct, array: _Array, parent: Any, code: ErrorCode) -> list[Any]:
    made = []
    inner = next(field.struct for field in struct.fields if field.name == array.to)
    assert inner is not None, f"{api.message}: {array.to} is not an array of structs"
    kind = getattr(getattr(messages, api.message).Response, inner.name)
    for entry in getattr(parent, array.of) or ():
        result = kind()
        for field, name in array.fields.items():
            setattr(result, field, getattr(entry, name) if name else entry)
        if array.inner is not None:
            setattr(result, array.inner.to, _mirror(api, inner, array.inner, entry, code))
        if array.error and (array.inner is None or not array.inner.error):
            setattr(result, array.error, code)
        made.append(result)
    return made


def _top(api: ApiKey) -> Struct:
    """The response as the schema has it."""
    return load(api.message)["response"].section.top
