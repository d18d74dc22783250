"""Parses the options of format("klog"), text from Spark, into one frozen `Options`. Pure: no file, no clock, no
pyspark.

    every value is text; keys are case-insensitive (Spark lower-cases them)
    startingOffsets    := earliest | BACK | JSON           endingOffsets   := latest | BACK | JSON
    JSON               := {"topic": {"partition": offset | BACK, ...}, ...}      offset −2 earliest, −1 latest
    BACK               := "-100", text: this many offsets before the end; also "-1" and "-2"
    startingTimestamp  := TIME                             endingTimestamp := TIME
    …OffsetsByTimestamp:= {"topic": {"partition": TIME, ...}, ...}
    TIME, AGO, SIZE    as in values.py

  O1  No option is dropped silently: it is supported, ignored with one warning (`Options.ignored`), or rejected by name.
  O2  Of several options for one bound the winner is: global timestamp, then timestamps per partition, then offsets.
      Only the winner is read, as in Spark's Kafka source, so that a query can be moved with unused options left in.
  O3  Ends are exclusive, also those by time: the first record at or after the time is the first one left out.

  O4  A stream begins at the latest record by default, as in Spark's Kafka source, and has no end: ending… options are
      rejected. What only streams have (stream_options.py) changes nothing in a batch query.

Names, words and JSON forms are those of Spark's Kafka source (KafkaSourceProvider, JsonUtils). Differences on purpose:
at most one of subscribe, subscribePattern and assign is needed instead of exactly one; a partition that the JSON leaves
out begins at its earliest (ends at its latest) record; times may be ISO text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from klog.spark import format_options, rows, stream_options, values
from klog.spark.bounds import EARLIEST, LATEST, Bound, Bounds, TopicPartition
from klog.spark.format_options import Formats
from klog.spark.limits import Limits
from klog.spark.plan import BINS_MAX
from klog.spark.reading import OnCorrupt, Reading
from klog.values import dataclass, field

WHICH_PARTITIONS = ("path", "paths", "subscribe", "subscribePattern", "assign")
WHICH_OFFSETS = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
SERVED = (
    *WHICH_PARTITIONS,
    *WHICH_OFFSETS,
    "includeHeaders",
    "view",
    "metadataColumns",
    "columns",
    "isolationLevel",
    "kafka.isolation.level",
    "upTo",
    "failOnDataLoss",
    "onCorrupt",
    "verifyCrc",
    "minPartitions",
    "maxRecordsPerPartition",
    "targetSplitBytes",
    "parallelism",
    "pushdown",
    "metrics",
    *format_options.FORMATS,
    *stream_options.STREAM_ONLY,
)

# Options of a Kafka client, which klog does not use.
_IGNORED_PREFIXES = ("kafka.", "fetchoffset.")
_IGNORED_NAMES = frozenset({"groupidprefix", "kafkaconsumer.polltimeoutms"})

_VIEWS = (
    "In SQL use CREATE TEMPORARY VIEW … USING klog OPTIONS (path '…'): "
    "Spark drops the options of a CREATE TABLE before a Python source gets them"
)
SPLIT_MIN = 64 << 10
"""A task takes about 70 ms before its first row; 128, meant as MiB, would plan a billion of them for 100 GB."""

# What other sources, or a write, call an option.
_INSTEAD = {
    "topic": "subscribe",
    "topics": "subscribe",
    "partition": "assign",
    "partitions": "assign",
    "bootstrap.servers": "kafka.bootstrap.servers",
    "group.id": "kafka.group.id",
}

# Spark's own options, which it passes to every source.
_SPARKS = frozenset({"queryname", "outputmode"})

NoMatch = Literal["error", "latest"]
UpTo = Literal["highWatermark", "lastStableOffset", "logEndOffset"]
Query = Literal["batch", "stream"]


@dataclass(frozen=True)
class Subscription:
    """The topic-partitions to read. All three None: every topic of the paths."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True)
class Options:
    """The options of one load(). Pickled into the reader, so it holds plain values only."""

    paths: tuple[str, ...]
    subscription: Subscription = field(default_factory=Subscription)
    start: Bounds = field(default_factory=lambda: Bounds(EARLIEST))
    end: Bounds = field(default_factory=lambda: Bounds(LATEST))
    no_match: NoMatch = "error"
    up_to: UpTo = "highWatermark"
    columns: tuple[str, ...] = rows.PLAIN
    """Those of the schema, in order, unless .schema() names others."""
    reading: Reading = field(default_factory=Reading)
    formats: Formats = field(default_factory=Formats)
    parallelism: int | None = None
    target_split_bytes: int | None = None
    min_partitions: int = 1
    max_records: int | None = None
    pushdown: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    commit_group: str | None = None
    checkpoint: str | None = None
    ignored: tuple[str, ...] = ()


def parse(raw: Mapping[str, str], query: Query | None = "batch") -> Options:
    """Parse what Spark passes. Raises ValueError, with the option's name and the next step, for anything invalid.

    query: None if that is not known yet: then all that one of the two accepts is valid (O4).
    """
    given = {key.lower(): value for key, value in raw.items()}
    ignored = _sort_out(given)
    return Options(
        paths=_paths(given),
        subscription=_subscription(given),
        start=_bounds(given, "starting", query),
        end=_bounds(given, "ending", query),
        no_match=_value(given, "startingOffsetsByTimestampStrategy", "error", values.word, ("error", "latest")),
        up_to=_value(given, "upTo", "highWatermark", values.word, get_args(UpTo)),
        columns=_columns(given),
        reading=_reading(given),
        formats=format_options.formats(given),
        parallelism=_value(given, "parallelism", None, values.count),
        target_split_bytes=_value(given, "targetSplitBytes", None, values.size, SPLIT_MIN),
        min_partitions=_value(given, "minPartitions", 1, values.count, BINS_MAX),
        max_records=_value(given, "maxRecordsPerPartition", None, values.count),
        pushdown=_pushdown(given, query),
        limits=stream_options.limits(given),
        commit_group=stream_options.commit_group(given),
        checkpoint=stream_options.checkpoint_directory(given),
        ignored=ignored,
    )


def _value(given: Mapping[str, str], option: str, default: Any, parser: Callable[..., Any], *more: object) -> Any:
    """Return what the parser makes of an option, the default if it is not set."""
    value = given.get(option.lower())
    return default if value is None else parser(value, option, *more)


def _reading(given: Mapping[str, str]) -> Reading:
    return Reading(
        committed=_isolation(given) == "read_committed",
        on_corrupt=_value(given, "onCorrupt", "fail", values.word, get_args(OnCorrupt)),
        fail_on_data_loss=_value(given, "failOnDataLoss", True, values.boolean),
        verify_crc=_value(given, "verifyCrc", True, values.boolean),
        metrics=_value(given, "metrics", False, values.boolean),
    )


def _isolation(given: Mapping[str, str]) -> str:
    """Return the level that either option names."""
    names = ("isolationLevel", "kafka.isolation.level")
    levels = {name: _value(given, name, None, values.word, ("read_uncommitted", "read_committed")) for name in names}
    named = {level for level in levels.values() if level is not None}
    if len(named) > 1:
        raise ValueError("options 'isolationLevel' and 'kafka.isolation.level' contradict each other; give one")
    return str(named.pop()) if named else "read_uncommitted"


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    named = _value(given, "columns", rows.PLAIN, values.words, rows.NAMES)
    headers = ("headers",) if _value(given, "includeHeaders", False, values.boolean) else ()
    more = _value(given, "metadataColumns", (), values.words, rows.METADATA)
    return tuple(dict.fromkeys((*named, *headers, *more)))


def _pushdown(given: Mapping[str, str], query: Query | None) -> tuple[str, ...]:
    value = given.get("pushdown", "false").strip().lower()
    if query == "stream" and value != "false":
        raise ValueError("option 'pushdown' is for batch queries: Spark gives no filters to a stream; leave it out")
    if value in ("true", "false"):
        return ("filters",) if value == "true" else ()
    try:
        return values.words(value, "pushdown", ("filters", "keys", "limit"))
    except ValueError:
        raise ValueError(
            f"option 'pushdown' must be 'true', 'false', or some of 'filters', 'keys' and 'limit' with commas between "
            f"them, not {value!r}"
        ) from None


def _sort_out(given: dict[str, str]) -> tuple[str, ...]:
    """Remove the ignored options from `given`, and raise for those that are not supported."""
    served = {name.lower() for name in SERVED}
    ignored = []
    for key in sorted(given):
        if key in served:
            continue
        if key == "location":  # Spark's name for the path of a CREATE TABLE
            raise ValueError(f"klog has no catalog tables. {_VIEWS}")
        if key not in _SPARKS:
            is_clients = key in _IGNORED_NAMES or key.startswith(_IGNORED_PREFIXES)
            if not is_clients or values.is_misspelled(key, "kafka.isolation.level"):
                raise ValueError(_refusal(key))
            ignored.append(key)
        del given[key]
    return tuple(ignored)


def _refusal(key: str) -> str:
    return f"unknown option '{key}'.{values.hint(key, SERVED, _INSTEAD)} Supported: {', '.join(SERVED)}"


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "path" in given and "paths" in given:
        raise ValueError("options 'path' and 'paths' are both set; give one of them, or only load([...])")
    if "paths" in given:
        paths = values.json_of(given["paths"], "paths", '["/var/kafka/a","/var/kafka/b"]')
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path for path in paths):
            raise ValueError(f"option 'paths' must be a JSON list of directories, not {given['paths']!r}")
        return tuple(paths)
    path = given.get("path", "")
    if not path:
        raise ValueError(f"no path: use .load('<log directory>') or .option('path', …). {_VIEWS}")
    return (path,)


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(chosen) > 1:
        raise ValueError(f"options {' and '.join(repr(name) for name in chosen)} exclude each other; give one")
    if not chosen:
        return Subscription()
    value = given[chosen[0].lower()]
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name for name in (part.strip() for part in value.split(",")) if name))
        if not topics:
            raise ValueError(f"option 'subscribe' = {value!r} names no topic; give names with commas between them")
        return Subscription(topics=topics)
    if chosen[0] == "assign":
        return Subscription(assigned=_assigned(value))
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"option 'subscribePattern' = {value!r} is not a regular expression: {error}") from None
    if not value.strip():
        raise ValueError("option 'subscribePattern' is empty; leave it out to read every topic")
    return Subscription(pattern=value)


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    example = '{"topicA":[0,1],"topicB":[2]}'
    topics = values.json_of(value, "assign", example)
    pairs: list[TopicPartition] = []
    if isinstance(topics, dict):
        for topic, partitions in topics.items():
            if not isinstance(partitions, list) or not all(
                values.is_int(number) and number >= 0 for number in partitions
            ):
                raise ValueError(f"option 'assign' must look like {example}, not {value!r}")
            pairs += [TopicPartition(topic, number) for number in partitions]
    if not pairs:
        raise ValueError(f"option 'assign' must name a partition, like {example}, not {value!r}")
    return tuple(sorted(set(pairs)))


def _bounds(given: Mapping[str, str], edge: Literal["starting", "ending"], query: Query | None) -> Bounds:
    """Return the bound of the option that wins for one edge (O2)."""

    def offset_bounds(value: str, option: str) -> Bounds:
        return _offset_bounds(value, option, latest_too=edge == "starting" and query != "batch")

    for name, read in (
        (f"{edge}Timestamp", _timestamp_bounds),
        (f"{edge}OffsetsByTimestamp", _timestamps_by_partition),
        (f"{edge}Offsets", offset_bounds),
    ):
        if name.lower() in given:
            if edge == "ending" and query == "stream":
                raise ValueError(f"option '{name}' is for batch queries: a stream has no end; leave it out")
            return read(given[name.lower()], name)
    return Bounds(LATEST if query == "stream" else _default(edge), option=None)


def _default(name: str) -> Bound:
    return EARLIEST if name.startswith("starting") else LATEST


def _timestamp_bounds(value: str, option: str) -> Bounds:
    return Bounds(values.time(value, option), option=option)


def _timestamps_by_partition(value: str, option: str) -> Bounds:
    example = '{"topicA":{"0":1700000000000,"1":"2023-11-14T22:13:20Z","2":"-10m"}}'
    bounds = {
        pair: values.time(time, f"{option} of {pair}") for pair, time in _by_partition(value, option, example).items()
    }
    return Bounds(_default(option), bounds, option=option)


def _offset_bounds(value: str, option: str, latest_too: bool) -> Bounds:
    """latest_too: may it be the latest offset, as in a stream?"""
    allowed, refused = ("earliest", "latest") if option == "startingOffsets" else ("latest", "earliest")
    word = value.strip().lower()
    if word == allowed:
        return Bounds(_default(option), option=option)
    if word == refused and latest_too:
        return Bounds(LATEST, option=option)
    if word == refused:
        raise ValueError(f"option '{option}' can't be '{refused}' in a batch query: no record would be read")
    back = values.offset_from_end(word)
    if back is not None:
        return Bounds(Bound("from_end", back), option=option)
    example = '{"topicA":{"0":23,"1":-2},"topicB":{"0":0,"1":"-100"}}'
    if not word.startswith("{"):
        raise ValueError(
            f"option '{option}' must be '{allowed}', '-100' for 100 offsets before the end, or JSON like "
            f"{example}, not {value!r}"
        )
    bounds = {
        pair: _offset_bound(offset, pair, option, example, latest_too)
        for pair, offset in _by_partition(value, option, example).items()
    }
    return Bounds(_default(option), bounds, option=option)


def _offset_bound(offset: Any, pair: TopicPartition, option: str, example: str, latest_too: bool) -> Bound:
    back = values.offset_from_end(offset)
    if back is not None:
        return Bound("from_end", back)
    if not values.is_int(offset) or not -2 <= offset <= values.INT64_MAX:
        back_from_end = values.is_int(offset) and offset < 0
        hint = f'; {-offset} offsets before the end are "{offset}", with quotes' if back_from_end else ""
        raise ValueError(f"option '{option}': {offset!r} for {pair} is not an offset{hint}; expected like {example}")
    named = {-2: EARLIEST, -1: LATEST}.get(offset)
    if named is None:
        return Bound.at_offset(offset)
    if named != _default(option) and not latest_too:
        raise ValueError(
            f"option '{option}' for {pair} can't be {offset} ({named.kind}) in a batch query: no record would be read; "
            f'"{offset}", with quotes, counts back from the end'
        )
    return named


def _by_partition(value: str, option: str, example: str) -> dict[TopicPartition, Any]:
    topics = values.json_of(value, option, example)
    pairs = {}
    if not isinstance(topics, dict):
        raise ValueError(f"option '{option}' must look like {example}, not {value!r}")
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"option '{option}' must look like {example}, not {value!r}")
        for number, item in partitions.items():
            partition = values.partition(number)
            if partition is None:
                raise ValueError(f"option '{option}': {number!r} of topic {topic!r} is not a partition number")
            pairs[TopicPartition(topic, partition)] = item
    return pairs
