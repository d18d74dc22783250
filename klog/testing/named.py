"""The topics and partitions that a request names, found by the schemas of the requests.

    a struct with a topic, topic_name or topic_id, or a Topic with a name    a topic
    its arrays of numbers, and of structs with an index                       partitions of it
    topic_names, subscribed_topic_names                                       topics
    a resource, or a pattern of an ACL, of the type TOPIC                     a topic
    no topics where that means all                                            every topic

An incremental Fetch or ShareFetch names the partitions of its session, too, but for those that it drops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.protocol import ApiKey
from klog.protocol.layout import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klog.protocol.schema import Struct
    from klog.security import Topics

EVERY: Final = None  # the topic of a request that asks for all of them
_NAME_FIELDS = ("topic", "topic_name")
_INDEX_FIELDS = ("index", "partition", "partition_index")
_NAME_ARRAYS = ("topic_names", "subscribed_topic_names")
_FORGOTTEN = "forgotten_topics_data"
_RESOURCES = (("resource_type", "resource_name"), ("resource_type_filter", "resource_name_filter"))
_TOPIC_RESOURCE = 2
_NULL_IS_UNCHANGED = frozenset((ApiKey.CONSUMER_GROUP_HEARTBEAT,))
_EMPTY_IS_EVERY = {ApiKey.METADATA: 0, ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0}  # until which version

Named = tuple[str | None, int | None]


def named_partitions(api: ApiKey, version: int, message: Any, topics: Topics) -> Iterator[Named]:
    """(topic, partition) of all that a request names; partition None for a topic itself, EVERY for all topics."""
    yield from _of_struct(api, load(api.message)["request"].section.top, message, topics)
    if version <= _EMPTY_IS_EVERY.get(api, -1) and not message.topics:
        yield EVERY, None


def forgotten_partitions(message: Any, topics: Topics) -> set[Named]:
    """(topic, partition) of what an incremental Fetch or ShareFetch drops from its session."""
    return {
        (topic_of(topic, topics), partition) for topic in getattr(message, _FORGOTTEN) for partition in topic.partitions
    }


def is_topic(struct: Struct) -> bool:
    """Is each value of this struct a topic?"""
    names = {field.name for field in struct.fields}
    return "topic_id" in names or not names.isdisjoint(_NAME_FIELDS) or ("name" in names and "Topic" in struct.name)


def topic_of(message: Any, topics: Topics) -> str:
    """The name of the topic that an entry of a request is about; "" for an unknown id."""
    if isinstance(message, str):
        return message
    for field in (*_NAME_FIELDS, "name"):
        found = getattr(message, field, None)
        if found:
            return str(found)
    topic_id = getattr(message, "topic_id", None)
    return "" if topic_id is None else topics.name_of(topic_id) or ""


def partition_of(message: Any) -> int | None:
    """The number of the partition that an entry of a topic is, or is about; None for another entry."""
    if isinstance(message, int):
        return message
    return next((int(getattr(message, field)) for field in _INDEX_FIELDS if hasattr(message, field)), None)


def _of_struct(api: ApiKey, struct: Struct, message: Any, topics: Topics) -> Iterator[Named]:
    for kind, name in _RESOURCES:
        if getattr(message, kind, None) == _TOPIC_RESOURCE:
            yield getattr(message, name), None
    for field in struct.fields:
        if not field.is_array or field.name == _FORGOTTEN:
            continue
        entries = getattr(message, field.name)
        if field.struct is None:
            if field.name in _NAME_ARRAYS:
                yield from ((each, None) for each in entries or ())
        elif not is_topic(field.struct):
            for each in entries or ():
                yield from _of_struct(api, field.struct, each, topics)
        elif entries is None:
            if api not in _NULL_IS_UNCHANGED:
                yield EVERY, None
        else:
            for each in entries:
                yield from _of_topic(field.struct, each, topics)


def _of_topic(struct: Struct, message: Any, topics: Topics) -> Iterator[Named]:
    name = topic_of(message, topics)
    yield name, None
    for field in struct.fields:
        if field.is_array and field.kind in ("int32", "struct"):
            for each in getattr(message, field.name) or ():
                partition = partition_of(each)
                if partition is not None:
                    yield name, partition
