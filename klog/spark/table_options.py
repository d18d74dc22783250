"""The arguments and options of materialize and table. The options are those of format("klog") that choose no records.

Names are case-insensitive. Those of FREE may differ from call to call. All others shape the rows: the table remembers
them (table_manifest.py, T5).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog.arguments import path as path_argument
from klog.arguments import text
from klog.spark import stream_options
from klog.spark.opening import is_partition_directory
from klog.spark.options import WHICH_OFFSETS, WHICH_PARTITIONS, Options, parse
from klog.spark.places import local
from klog.spark.rows import BAD_VALUE, full_schema
from klog.spark.survey import absolute_directory
from klog.spark.table_manifest import Manifest
from klog.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FREE = frozenset({"failondataloss", "oncorrupt", "verifycrc", "upto", "parallelism", "metrics"})
_SCHEMAS = frozenset({"valueschema", "keyschema", "schemas"})  # their result, the table's schema, is compared
NEEDED = ("key", "value", "partition")
"""The columns of a table of latest records."""

# materialize and table decide about these themselves.
_REFUSED = (
    *WHICH_PARTITIONS,
    *WHICH_OFFSETS,
    "view",
    "pushdown",
    "minPartitions",
    "maxRecordsPerPartition",
    "targetSplitBytes",
    *stream_options.STREAM_ONLY,
)
_BY_LOWER = {name.lower(): name for name in _REFUSED}
_ISOLATION = "kafka.isolation.level"

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class Request:
    """Checked arguments. given: the caller's options, names in lower case. raw: all options, for the source of
    format("klog"). options: the same, parsed."""

    topic: str
    target: str
    given: Mapping[str, str]
    raw: Mapping[str, str]
    options: Options


def directory_of(target: Any) -> str:
    """Return the local directory of a table, which need not exist. Raises ValueError for other file systems."""
    given = path_argument("target", target)
    found = local(given)
    if found is None or given.startswith("~"):
        raise ValueError(f"target {given!r}: tables are in local directories; give the path of one")
    whole = os.path.abspath(found)
    if os.path.exists(whole) and not os.path.isdir(whole):
        raise ValueError(f"target {given!r} is not a directory (looked for {whole}); give another name")
    return whole


def request(
    path: Paths, topic: str, target: Any, given: Mapping[str, str], parallelism: str, before: Manifest | None = None
) -> Request:
    """Check the arguments of a call. given: options as text. before: a table whose options are the defaults.

    Raises ValueError, with the option's name and the next step.
    """
    given = {**({} if before is None else before.options), **_lower(given)}
    paths = _directories(path)
    directory = directory_of(target)
    for each in paths:
        outer = os.path.realpath(os.path.dirname(each) if is_partition_directory(each) else each)
        if os.path.commonpath([outer, os.path.realpath(directory)]) == outer:
            raise ValueError(
                f"target {directory!r} is in the log directory {outer}, where a broker accepts topics only; "
                f"name another"
            )
    if "schemas" in given:
        given["schemas"] = os.path.abspath(given["schemas"])
    raw = {
        "parallelism": parallelism,
        **given,
        "paths": json.dumps(paths),
        "subscribe": text("topic", topic),
    }
    options = parse(raw)
    if options.subscription.topics != (topic,):
        raise ValueError(f"topic={topic!r}: the name of one topic expected")
    return Request(topic, directory, given, raw, options)


def _directories(path: Any) -> list[str]:
    """Return the directories of the argument path. Raises TypeError and ValueError with its name."""
    given = [path] if isinstance(path, str | bytes | os.PathLike) or not isinstance(path, Iterable) else list(path)
    if not given:
        raise ValueError("path=[]: name at least one log directory")
    return [absolute_directory(path_argument("path", each)) for each in given]


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    given = {}
    for name, value in options.items():
        key = name.lower()
        if key in _BY_LOWER:
            raise ValueError(
                f"option '{_BY_LOWER[key]}' has no place here: a table is of one topic, and each call goes "
                f"on where the one before has ended; leave it out"
            )
        given["isolationlevel" if key == _ISOLATION else key] = value
    return given


def shaping(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that shape rows; those of a Kafka client do nothing."""
    return {
        key: given[key] for key in sorted(given) if key not in FREE and not key.startswith(("kafka.", "fetchoffset."))
    }


def check_same(before: Manifest, call: Request, schema: Any, latest: bool | None) -> None:
    """Raise ValueError if a table is of another topic, or was made with other options."""
    target = f"target {call.target!r}"
    if call.topic != before.topic:
        raise ValueError(f"{target} is a table of topic {before.topic!r}, not {call.topic!r}: give another one")
    now = shaping(call.given)
    for key in sorted({*now, *before.options} - _SCHEMAS):
        if now.get(key) != before.options.get(key):
            raise ValueError(
                f"{target} was made {_shown(key, before.options)}, but this call is {_shown(key, now)}: give the same "
                f"options, or another target"
            )
    if latest is not None and latest != before.latest:
        raise ValueError(f"{target} was made with latest={before.latest}, not {latest}: give another target")
    if schema != before.schema:
        raise ValueError(
            f"{target} was made with other columns or types than these options now mean: name the schema of the table "
            f"by valueSchema, or give another target"
        )


def _shown(key: str, options: Mapping[str, str]) -> str:
    return f"with {key}={options[key]!r}" if key in options else f"without the option {key}"


def read_schema(schema: StructType, latest: bool, options: Options) -> StructType:
    """Return the columns that tasks read to write a table with this schema. Raises ValueError if they cannot.

    With onBadValue=null they have badValue, which distinguishes a bad value from a tombstone.
    """
    from pyspark.sql.types import StructType

    more = ["offset"]
    if latest:
        missing = [name for name in NEEDED if name not in schema.names]
        if missing:
            raise ValueError(
                f"a table of the latest record of each key needs the columns {', '.join(NEEDED)}: add "
                f"{', '.join(missing)} to the option columns, or use latest=False"
            )
        if "isControl" in schema.names:
            raise ValueError("the column isControl has no place in a table of the latest records: leave it out")
        bad, key = options.formats.null_bad_values, options.formats.of["key"].word
        if not (key == "bytes" or (key == "string" and not bad)):
            raise ValueError(
                "a table of the latest record of each key needs its keys: use keyFormat=bytes, keyFormat=string with "
                "onBadValue=fail, or latest=False"
            )
        more += [BAD_VALUE] if bad else []
    return StructType([*schema.fields, *(full_schema()[name] for name in more if name not in schema.names)])
