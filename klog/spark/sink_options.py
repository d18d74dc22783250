"""Parses the options of a write by format("klog") into one frozen `SinkOptions`, and checks the columns to write. Pure.

topic          the topic of every row; it wins over the column
partitions     of topics that the write creates, 1 unless given
createTopics   false: a topic that does not exist is an error
Kafka's names of topic properties (segment.bytes, message.timestamp.type, ...): for the topics that the write creates;
those of an existing topic must be as given. compression.type is also the codec of the rows, as of a producer
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from klog import LogConfig
from klog.codec import parse_compression
from klog.spark import values
from klog.spark.places import local
from klog.values import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OWN = ("path", "topic", "partitions", "createTopics")
COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
# Options that Spark itself passes to a sink.
_SPARKS = frozenset({"checkpointlocation", "queryname", "outputmode"})
_PARTITIONS_MAX = 10_000
_PRODUCERS_CODEC = "kafka.compression.type"
# What other sinks, or a read, call an option.
_INSTEAD = {
    "subscribe": "topic",
    "topics": "topic",
    "partition": "partitions",
    "compression": "compression.type",
    "codec": "compression.type",
}


@dataclass(frozen=True)
class SinkOptions:
    """The options of one write. topic: None if the rows name it. partitions: None if not given. config: of new topics.
    codec: None for the topic's own."""

    path: str
    topic: str | None = None
    partitions: int | None = None
    create_topics: bool = True
    config: Mapping[str, str] = field(default_factory=dict)
    codec: str | None = None
    ignored: tuple[str, ...] = ()

    @property
    def config_of_new_topics(self) -> dict[str, Any]:
        """Their configuration: records are kept unless an option says otherwise, as history may be old."""
        return {"retention.ms": "-1", **self.config}


def parse(raw: Mapping[str, str]) -> SinkOptions:
    """Parse what Spark passes. Raises ValueError, with the option's name, for anything invalid."""
    given = {key.lower(): value for key, value in raw.items()}
    config, ignored = {}, []
    topic_keys = set(LogConfig.keys_known())
    own = {name.lower() for name in OWN}
    for key in sorted(given):
        if key in topic_keys:
            config[key] = given[key]
        elif key.startswith("kafka.") and not values.is_misspelled(key, _PRODUCERS_CODEC):
            ignored.append(key)
        elif key not in own and key not in _SPARKS:
            raise ValueError(_refusal(key, topic_keys))
    LogConfig(config)  # raises for an invalid value
    path = given.get("path", "")
    if not path:
        raise ValueError("no path: use .save('<log directory>') or .option('path', ...)")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ValueError("option 'topic' is empty: give a topic's name, or leave it out and have a column topic")
    return SinkOptions(
        absolute_path(path),
        topic,
        _partitions(given.get("partitions")),
        values.boolean(given.get("createtopics", "true"), "createTopics"),
        config,
        _codec(config, given.get(_PRODUCERS_CODEC)),
        tuple(key for key in ignored if key != _PRODUCERS_CODEC),
    )


def _codec(config: Mapping[str, str], producers: str | None) -> str | None:
    codec = config.get("compression.type", producers)
    if codec in (None, "producer"):
        return None
    try:
        parse_compression(codec)
    except ValueError as error:
        raise ValueError(f"option '{_PRODUCERS_CODEC}' = {codec!r}: {error}") from None
    return "none" if codec == "uncompressed" else codec


def absolute_path(path: str) -> str:
    """The directory of an option's value, which need not exist. Raises ValueError for other file systems."""
    found = local(path)
    if found is None or path.startswith("~"):
        raise ValueError(f"path {path!r}: klog writes to local directories; give one, with / in place of a scheme or ~")
    whole = os.path.abspath(found)
    if os.path.exists(whole) and not os.path.isdir(whole):
        raise ValueError(f"path {path!r} is not a directory (looked for {whole}); give a Kafka log directory")
    return whole


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ValueError, with the column's name, unless the schema is one that can be written."""
    from pyspark.sql import types

    bytes_like = (types.BinaryType, types.StringType)
    allowed: dict[str, tuple[type, ...]] = {
        "key": (*bytes_like, types.NullType),
        "value": bytes_like,
        "topic": (types.StringType,),
        "partition": (types.IntegerType, types.ShortType, types.ByteType),
        "timestamp": (types.TimestampType,),
    }
    words = {
        "key": "string or binary",
        "value": "string or binary",
        "topic": "string",
        "partition": "int",
        "timestamp": "timestamp (with a time zone)",
    }
    for column in schema.fields:
        if column.name not in COLUMNS:
            near = difflib.get_close_matches(column.name.lower(), COLUMNS, n=1, cutoff=0.7)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ValueError(
                f"column '{column.name}' cannot be written.{hint} A record has {', '.join(COLUMNS)}: select these; "
                "other columns go into the value, for example by to_json(struct(...)) AS value"
            )
        if schema.names.count(column.name) > 1:
            raise ValueError(f"column '{column.name}' is there twice")
        if column.name == "headers":
            _check_headers(column.dataType)
        elif not isinstance(column.dataType, allowed[column.name]):
            raise ValueError(
                f"column '{column.name}' is {column.dataType.simpleString()}, expected {words[column.name]}: cast it"
            )
    if "value" not in schema.names:
        raise ValueError(f"no column 'value'; the columns are {', '.join(schema.names) or 'none'}")
    if topic is None and "topic" not in schema.names:
        raise ValueError("no topic: set the option 'topic', or add a column 'topic'")


def _check_headers(kind: Any) -> None:
    from pyspark.sql import types

    entry = getattr(kind, "elementType", None)
    fields = {field.name: field.dataType for field in entry.fields} if isinstance(entry, types.StructType) else {}
    good = set(fields) == {"key", "value"} and isinstance(fields["key"], types.StringType)
    if not good or not isinstance(fields["value"], types.BinaryType | types.StringType):
        raise ValueError(
            f"column 'headers' is {kind.simpleString()}, expected array<struct<key:string,value:binary>>: cast it"
        )


def _partitions(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or not 1 <= int(text) <= _PARTITIONS_MAX:
        raise ValueError(f"option 'partitions' = {text!r}: a number from 1 to {_PARTITIONS_MAX} expected")
    return int(text)


def _refusal(key: str, topic_keys: set[str]) -> str:
    if key == "includeheaders":
        return "option 'includeHeaders' is of a read; a write stores the column headers if there is one: leave it out"
    near = values.hint(key, [*OWN, *topic_keys, _PRODUCERS_CODEC], _INSTEAD)
    return f"unknown option '{key}' of a write.{near} Supported: {', '.join(OWN)}, and the properties of a topic"
