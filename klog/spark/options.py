"""Parses the options of format("klog"), text from Spark, into one frozen `Options`. Pure: no file, no clock, no
pyspark.

    every value is text; keys are case-insensitive (Spark lower-cases them)
    startingOffsets    := earliest | JSON           endingOffsets   := latest | JSON
    JSON               := {"topic": {"partition": offset, ...}, ...}      offset −2 earliest, −1 latest
    startingTimestamp  := TIME                      endingTimestamp := TIME
    …OffsetsByTimestamp:= {"topic": {"partition": TIME, ...}, ...}
    TIME               := milliseconds since 1970 | ISO-8601 with a zone

  O1  No option is dropped silently: it is supported, ignored with one warning (`Options.ignored`), or rejected by name.
  O2  Of several options for one bound the winner is: global timestamp, then timestamps per partition, then offsets.
      Only the winner is read, as in Spark's Kafka source, so that a query can be moved with unused options left in.
  O3  Ends are exclusive, also those by time: the first record at or after the time is the first one left out.

Names, words and JSON forms are those of Spark's Kafka source (KafkaSourceProvider, JsonUtils). Differences on purpose:
at most one of subscribe, subscribePattern and assign is needed instead of exactly one; a partition that the JSON leaves
out begins at its earliest (ends at its latest) record; times may be ISO text.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from klog.spark.bounds import EARLIEST, LATEST, Bound, Bounds, TopicPartition

SERVED = (
    "path",
    "paths",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
)

# Options of Spark's Kafka source, or of klog's own, that would change the rows. To ignore one would give wrong results,
# so each is rejected by name.
NOT_SERVED = (
    "minPartitions",
    "maxRecordsPerPartition",
    "targetSplitBytes",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "isolationLevel",
    "upTo",
    "view",
    "onCorrupt",
    "columns",
    "metadataColumns",
    "pushdown",
    "verifyCrc",
    "metrics",
    "valueFormat",
    "commitGroup",
    "topic",
)

# Options of a Kafka client, which klog does not use.
_IGNORED_PREFIXES = ("kafka.", "fetchoffset.")
_IGNORED_NAMES = frozenset({"groupidprefix", "kafkaconsumer.polltimeoutms"})

_VIEWS = (
    "In SQL use CREATE TEMPORARY VIEW … USING klog OPTIONS (path '…'): "
    "Spark drops the options of a CREATE TABLE before a Python source gets them"
)
_CANONICAL = {name.lower(): name for name in (*SERVED, *NOT_SERVED)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"[+-]?[0-9]{1,30}")
_INT64_MAX = (1 << 63) - 1

NoMatch = Literal["error", "latest"]


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
    include_headers: bool = False
    ignored: tuple[str, ...] = ()


def parse(raw: Mapping[str, str]) -> Options:
    """Parse what Spark passes. Raises ValueError, with the option's name and the next step, for anything invalid."""
    given = {key.lower(): value for key, value in raw.items()}
    ignored = _sort_out(given)
    return Options(
        paths=_paths(given),
        subscription=_subscription(given),
        start=_bounds(given, "starting"),
        end=_bounds(given, "ending"),
        no_match=_no_match(given),
        include_headers=_boolean(given, "includeHeaders", False),
        ignored=ignored,
    )


def _sort_out(given: dict[str, str]) -> tuple[str, ...]:
    """Remove the ignored options from `given`, and raise for those that are not supported."""
    served = {name.lower() for name in SERVED}
    ignored = []
    for key in sorted(given):
        if key in served:
            continue
        if key == "location":  # Spark's name for the path of a CREATE TABLE
            raise ValueError(f"klog has no catalog tables. {_VIEWS}")
        if key == "kafka.isolation.level":
            _check_isolation(given[key])
        elif key not in _IGNORED_NAMES and not key.startswith(_IGNORED_PREFIXES):
            raise ValueError(_refusal(key))
        ignored.append(key)
        del given[key]
    return tuple(ignored)


def _check_isolation(value: str) -> None:
    # The only kafka.* property that changes which rows are returned.
    if value.strip().lower() != "read_uncommitted":
        raise ValueError(
            f"option 'kafka.isolation.level' = {value!r} is not supported by this version of klog: it reads "
            f"'read_uncommitted', including records of aborted transactions; leave out the option to accept that"
        )


def _refusal(key: str) -> str:
    name = _CANONICAL.get(key)
    if name is not None:
        return f"option '{name}' is not supported by this version of klog; leave it out. Supported: {', '.join(SERVED)}"
    near = difflib.get_close_matches(key, _CANONICAL, n=1, cutoff=0.75)
    hint = f" Did you mean '{_CANONICAL[near[0]]}'?" if near else ""
    if near and _CANONICAL[near[0]] in NOT_SERVED:
        hint += " This version does not support it."
    return f"unknown option '{key}'.{hint} Supported: {', '.join(SERVED)}"


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "path" in given and "paths" in given:
        raise ValueError("options 'path' and 'paths' are both set; give one of them, or only load([...])")
    if "paths" in given:
        paths = _json(given["paths"], "paths", '["/var/kafka/a","/var/kafka/b"]')
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
    topics = _json(value, "assign", example)
    pairs: list[TopicPartition] = []
    if isinstance(topics, dict):
        for topic, partitions in topics.items():
            if not isinstance(partitions, list) or not all(_is_int(number) and number >= 0 for number in partitions):
                raise ValueError(f"option 'assign' must look like {example}, not {value!r}")
            pairs += [TopicPartition(topic, number) for number in partitions]
    if not pairs:
        raise ValueError(f"option 'assign' must name a partition, like {example}, not {value!r}")
    return tuple(sorted(set(pairs)))


def _bounds(given: Mapping[str, str], edge: Literal["starting", "ending"]) -> Bounds:
    """Return the bound of the option that wins for one edge (O2)."""
    for name, read in (
        (f"{edge}Timestamp", _timestamp_bounds),
        (f"{edge}OffsetsByTimestamp", _timestamps_by_partition),
        (f"{edge}Offsets", _offset_bounds),
    ):
        if name.lower() in given:
            return read(given[name.lower()], name)
    return Bounds(_default(edge), option=None)


def _default(name: str) -> Bound:
    return EARLIEST if name.startswith("starting") else LATEST


def _timestamp_bounds(value: str, option: str) -> Bounds:
    return Bounds(Bound.at_timestamp(_time(value, option)), option=option)


def _timestamps_by_partition(value: str, option: str) -> Bounds:
    example = '{"topicA":{"0":1700000000000,"1":"2023-11-14T22:13:20Z"}}'
    bounds = {
        pair: Bound.at_timestamp(_time(time, f"{option} of {pair}"))
        for pair, time in _by_partition(value, option, example).items()
    }
    return Bounds(_default(option), bounds, option=option)


def _offset_bounds(value: str, option: str) -> Bounds:
    allowed, refused = ("earliest", "latest") if option == "startingOffsets" else ("latest", "earliest")
    word = value.strip().lower()
    if word == allowed:
        return Bounds(_default(option), option=option)
    if word == refused:
        raise ValueError(f"option '{option}' can't be '{refused}' in a batch query: no record would be read")
    example = '{"topicA":{"0":23,"1":-2},"topicB":{"0":0}}'
    if not word.startswith("{"):
        raise ValueError(f"option '{option}' must be '{allowed}' or JSON like {example}, not {value!r}")
    bounds = {}
    for pair, offset in _by_partition(value, option, example).items():
        if not _is_int(offset) or not -2 <= offset <= _INT64_MAX:
            raise ValueError(f"option '{option}': {offset!r} for {pair} is not an offset; expected like {example}")
        if offset == (-1 if refused == "latest" else -2):
            raise ValueError(f"option '{option}' for {pair} can't be {offset} ({refused}) in a batch query")
        bounds[pair] = {-2: EARLIEST, -1: LATEST}.get(offset) or Bound.at_offset(offset)
    return Bounds(_default(option), bounds, option=option)


def _by_partition(value: str, option: str, example: str) -> dict[TopicPartition, Any]:
    topics = _json(value, option, example)
    pairs = {}
    if not isinstance(topics, dict):
        raise ValueError(f"option '{option}' must look like {example}, not {value!r}")
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"option '{option}' must look like {example}, not {value!r}")
        for number, item in partitions.items():
            if not (number.isascii() and number.isdigit()):
                raise ValueError(f"option '{option}': {number!r} of topic {topic!r} is not a partition number")
            pairs[TopicPartition(topic, int(number))] = item
    return pairs


def _time(value: object, option: str) -> int:
    """Return milliseconds since 1970. A finer time is rounded up, so that "at or after" stays true."""
    if _is_int(value) or (isinstance(value, str) and _MILLISECONDS.fullmatch(value.strip())):
        time_ms = int(str(value))
        if not 0 <= time_ms <= _INT64_MAX:
            raise ValueError(f"option '{option}' = {time_ms} is out of range for milliseconds since 1970-01-01 UTC")
        return time_ms
    try:
        moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(
            f"option '{option}' = {value!r} is not a time; give milliseconds or ISO text like '2013-02-08T05:00:00Z'"
        )
    if moment.tzinfo is None:
        raise ValueError(f"option '{option}' = {value!r} has no time zone; add 'Z' or an offset such as '+01:00'")
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    if microseconds < 0:
        raise ValueError(f"option '{option}' = {value!r} is before 1970-01-01 UTC, where Kafka's time begins")
    return -(-microseconds // 1000)


def _no_match(given: Mapping[str, str]) -> NoMatch:
    value = given.get("startingoffsetsbytimestampstrategy", "error")
    match value.strip().lower():
        case "error":
            return "error"
        case "latest":
            return "latest"
    raise ValueError(f"option 'startingOffsetsByTimestampStrategy' must be 'error' or 'latest', not {value!r}")


def _boolean(given: Mapping[str, str], option: str, default: bool) -> bool:
    value = given.get(option.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise ValueError(f"option '{option}' must be 'true' or 'false', not {value!r}")
    return value.strip().lower() == "true"


def _json(value: str, option: str, example: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"option '{option}' must be JSON like {example}, not {value!r}") from None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
