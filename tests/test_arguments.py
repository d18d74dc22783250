"""Every public callable refuses arguments of wrong and almost right types with a TypeError, ValueError or KlogError
that names the argument, and has no effect: files, streams and the process stay unchanged.

The calls are found in the sources and stubs. The accepted types of a parameter follow from its annotation (TAKES); a
new annotation, or a class that the test cannot instantiate, fails it until it is added here.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import fractions
import inspect
import itertools
import math
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

import klog
from klog import record
from klog.clock import ManualClock, SystemClock
from klog.errors import KlogError
from tests.support.abandon import abandon
from tests.support.public_calls import Call, Parameter, public_calls


class Indexable:
    """An int to operator.index(), and to nothing else."""

    def __index__(self) -> int:
        return 1


class Floating:
    """A float to float(), and to nothing else."""

    def __float__(self) -> float:
        return 1.0


class NumberedPath:
    def __fspath__(self) -> int:
        return 5


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("not shown")


NAN, INF, LONE, MANY_DIGITS = math.nan, math.inf, "\ud800", "9" * 5000
ROWS, EVERY_SECOND = memoryview(bytes(4)).cast("B", (2, 2)), memoryview(b"abcd")[::2]
VALUES: list[Any] = [
    *(None, True, False, 0, 1.0, 1.5, NAN, INF, "0", "", "a\0b", LONE, "no such word", b"0", b""),
    *(-1, 2**31, 2**63, -(2**63) - 1, 10**400, numpy.int64(1), numpy.float64(1.0), numpy.bool_(True)),
    *([], ["a"], [("a", "b")], (), {}, {1: 2}, object(), Path("x"), uuid.UUID(int=5), datetime.datetime(2020, 1, 1)),
    *(Indexable(), Floating(), NumberedPath(), Unshown(), MANY_DIGITS, ROWS, EVERY_SECOND),
    *(numpy.array(1), numpy.array([1, 2]), decimal.Decimal(1), decimal.Decimal("sNaN"), fractions.Fraction(1, 2)),
]

# ---- accepted types of parameters -----------------------------------------------------------------------------------


def single(value: Any) -> bool:
    return isinstance(value, numpy.ndarray) and value.ndim == 0


def integer(value: Any) -> bool:
    return isinstance(value, int | numpy.integer) and not isinstance(value, bool)


def long(value: Any) -> bool:
    return isinstance(value, Indexable) or single(value) or (integer(value) and -(2**63) <= value < 2**63)


def flag(value: Any) -> bool:
    return isinstance(value, bool | numpy.bool_)


def text(value: Any) -> bool:
    return isinstance(value, str) and value != LONE


def path(value: Any) -> bool:
    return isinstance(value, str | bytes | Path) and value not in ("", b"", "a\0b")


def seconds(value: Any) -> bool:
    if isinstance(value, Floating) or single(value):
        return True
    number = isinstance(value, int | float | numpy.number | fractions.Fraction) and not isinstance(value, bool)
    number = number or (isinstance(value, decimal.Decimal) and not value.is_nan())
    return bool(number and 0 <= value <= 2**33)


def buffer(value: Any) -> bool:
    return isinstance(value, bytes | numpy.generic | numpy.ndarray) or value is ROWS


def position(value: Any) -> bool:
    return long(value) or (isinstance(value, str) and value == "0")


def mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and not value


def nothing(value: Any) -> bool:
    return value is None


def empty(value: Any) -> bool:
    """An empty iterable is valid for any element type."""
    return isinstance(value, list | tuple) and not value


def none_at_all(value: Any) -> bool:
    return False


def either(*takes: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: any(take(value) for take in takes)


def label(value: Any) -> bool:
    """A path that is only displayed."""
    return isinstance(value, str | bytes | Path) and value not in (b"",)


def iterable(value: Any) -> bool:
    return isinstance(value, str | bytes | list | tuple | dict | memoryview | numpy.ndarray)


TAKES: dict[str, Callable[[Any], bool]] = {
    "int": long,
    "bool": flag,
    "str": text,
    "float": seconds,
    "TimestampType": long,  # an IntEnum
    "bytes": lambda value: isinstance(value, bytes),
    "Buffer": buffer,
    "WriteableBuffer": lambda value: isinstance(value, bytearray | numpy.ndarray),
    "Position": position,
    "TopicPosition": either(position, lambda value: isinstance(value, dict)),
    "uuid.UUID": lambda value: isinstance(value, uuid.UUID),
    "str | os.PathLike[str]": path,
    "str | PathLike[str]": label,
    "LogManager | str | os.PathLike[str]": path,
    "Paths": lambda value: path(value) or (isinstance(value, list) and value == ["a"]),
    "Mapping[str, Any]": mapping,
    "Mapping[str, object]": mapping,
    "Records": empty,
    "Any": empty,  # records that a serializer makes bytes of: tests/log/test_append_shapes.py
    "Compression": nothing,
    "str | tuple[str, int]": none_at_all,
    "tuple[str, int]": none_at_all,
    "dict[bytes, int]": lambda value: isinstance(value, dict),
    "Headers": empty,
    "Iterable[tuple[str, Buffer | None]]": empty,
    "Iterable[tuple[int, int, int]]": lambda value: isinstance(value, list | tuple | dict) and not value,
    "Iterable[str]": either(empty, lambda value: isinstance(value, dict) and not value),  # the keys of a mapping
    "Sequence[str]": empty,
    "Iterable[ArrowColumns]": iterable,  # each is checked when it is read
    "Iterable[Buffer | FetchData | Slices]": lambda value: (
        (isinstance(value, list | tuple | dict) and not value) or (isinstance(value, numpy.ndarray) and value.ndim > 0)
    ),
    "Sequence[Buffer | None]": empty,
    "Sequence[_Headers | None]": empty,
    "Sequence[int | None] | Buffer | None": either(empty, nothing),
    "Iterable[MetadataRecord]": empty,
    "Sequence[str] | str": empty,
    "list[BatchGroup]": lambda value: isinstance(value, list) and not value,
    "object": lambda value: True,
    **dict.fromkeys(
        [
            "AppendInfo",
            "Axes",
            "BinaryIO",
            "Clock",
            "DeadLetter",
            "Decode",
            "Durability",
            "Files",
            "HasFileno",
            "Isolation",
            "LogConfig",
            "LogManager",
            "Measured",
            "ManagerConfig",
            "Meter",
            "Missing",
            "MissingTopic",
            "OffsetMetadata",
            "OnBad",
            "Origin",
            "Payloads",
            "Policy",
            "Progress",
            "Rows",
            "TuningReport",
            *("ArrowArray", "ArrowStream", "Layout", "_Waiting", "retention.Predicate", "threading.Event"),
            *("Literal['client', 'coordinator']", "Callable[[int], None]"),
            "Callable[[CorruptBatch, int], object]",
        ],
        none_at_all,
    ),
}


def takes(annotation: str) -> Callable[[Any], bool]:
    """The values for an annotation, or for its parts."""
    if annotation in TAKES:
        return TAKES[annotation]
    head, bar, last = annotation.rpartition(" | ")
    if bar and last == "None":
        return either(takes(head), nothing)
    if bar and last in TAKES:
        return either(takes(head), TAKES[last])
    first, bar, rest = annotation.partition(" | ")
    if bar and first in TAKES:
        return either(TAKES[first], takes(rest))
    raise LookupError(f"annotation {annotation!r}: add to TAKES which of VALUES it accepts")


# ---- objects and arguments of the calls -----------------------------------------------------------------------------

# Objects that only klog constructs: no program calls these.
GIVEN = {
    *(klog.AppendInfo, klog.FetchData, klog.FetchRange, klog.Log, klog.LogManager, klog.LogReader, klog.NamedReader),
    *(
        klog.LatestByKey,
        klog.LogAsOf,
        klog.Recovery,
        klog.ProducerState,
        klog.CompactionStats,
        klog.PurgeStats,
        klog.TimestampOffset,
    ),
    *(klog.RecordBatch, record.Rows, record.Columns, record.BatchGroup, record.BatchTable, record.ValidatedBatch),
    *(record.RecordError, record.UncheckedHeader, klog.clock.Clock, klog.metrics.Sample),
}
# A key or value with gaps between its bytes is copied.
COPIES = {"Record"}
# A call that only waits, with a short timeout.
WAITS = {"SystemClock.sleep"}
CHANGES_NOTHING = {
    "column_names",
    "columns",
    "decode",
    "encode",
    "is_arrow",
    "iter_records",
    "join_groups",
    "note_latest",
    "unchecked_header",
    "validate",
    "validate_append",
}
TOPIC = {"segment.bytes": 1 << 20, "segment.index.bytes": 4096, "cleanup.policy": "compact,delete"}


class World:
    """A log.dir with a topic, and an object of every class."""

    def __init__(self, base: Path) -> None:
        self.path = Path(tempfile.mkdtemp(dir=base))
        one, two = self.path / "one", self.path / "two"
        self.logs = klog.open([one, two], create=True, clock=ManualClock())
        self.logs.create_topic("t", 2, TOPIC, directory=one)
        self.log = self.logs.log("t")
        self.logs.log("t", 1)
        self.log.append([(b"k", b"v")] * 3)
        self.log.roll()
        self.log.append([(b"k", b"w")] * 3, compression="lz4")
        (self.path / "properties").write_text("retention.ms=5\n")
        (self.path / "rows.csv").write_text("key,value\n1,a\n")
        (self.path / "alone").mkdir()
        self.batch = record.encode([(b"k", b"v")])
        self.reader = self.logs.reader("t", "name")
        self.sink = open(os.devnull, "wb")

    def object_of(self, kind: type) -> Any:
        make: dict[type, Callable[[], Any]] = {
            klog.Log: lambda: self.log,
            klog.LogManager: lambda: self.logs,
            klog.LogReader: lambda: self.log.read(),
            klog.LatestByKey: lambda: self.log.latest_by_key(),
            klog.LogAsOf: lambda: self.log.as_of("now"),
            klog.NamedReader: lambda: self._reader_at_the_start(),
            klog.FetchData: lambda: self.log.fetch(0),
            klog.FetchRange: lambda: self.log.fetch_range(0),
            klog.Outgoing: lambda: klog.Outgoing([b"x"]),
            klog.AppendInfo: lambda: self.log.append([]),
            klog.LogConfig: klog.LogConfig,
            klog.ManagerConfig: klog.ManagerConfig,
            SystemClock: SystemClock,
            ManualClock: ManualClock,
            record.BatchBuilder: record.BatchBuilder,
            record.BatchGroup: lambda: self._group(),
            record.EncodedBatches: lambda: record.EncodedBatches(self.batch),
            record.Encoder: lambda: record.Encoder(**self.arguments_of("Encoder")),
        }
        return make[kind]()

    def _reader_at_the_start(self) -> klog.NamedReader:
        self.reader.seek("earliest")
        return self.reader

    def _group(self) -> record.BatchGroup:
        builder = record.BatchBuilder()
        builder.append(b"k", b"v")
        return builder.build()

    def arguments_of(self, name: str) -> dict[str, Any]:
        """Valid values for the parameters of a call whose annotation is not specific enough."""
        log = {"path": self.path / "alone" / "u-0"}
        encoder = dict.fromkeys(("timestamp_default", "timestamp_min", "timestamp_max"), 0)
        encoder = {"records": [], "batch_bytes_max": 9999, "message_bytes_max": 9999, **encoder}
        return {
            "open_directory": {"path": self.path / "new", "create": True},
            "Log.open": log,
            "LogManager.create_topic": {"name": "new"},
            "LogManager.add_partitions": {"topic": "t", "total": 5},
            "partition_for": {"key": b"k", "partitions": 2},
            "LogManager.move": {"topic": "t", "partition": 0, "directory": self.path / "two"},
            "LogManager.reader": {"topic": "t", "name": "other"},
            "LogManager.tail": {"topic": "t", "start": "earliest", "partition": 0, "timeout": 0},
            "Log.tail": {"start": "earliest", "timeout": 0},
            "Log.rename_dir": {"name": "v-0"},
            "LogConfig.from_properties": {"path": self.path / "properties"},
            "ManagerConfig.from_properties": {"path": self.path / "properties"},
            "Encoder": encoder,
            "encode": {"last_offset_delta": 0},
            "Lists": {"keys": None, "values": []},
            "verify": {"path": self.path / "one"},
            "LatestByKey.to_parquet": {"path": self.path / "properties"},
            "LogReader.to_parquet": {"path": self.path / "properties"},
            "NamedReader.to_parquet": {"path": self.path / "properties"},
            "FetchData.send_part": {"start": 0, "size": 0},
            "adopt": {"path": self.path / "one"},
            "apply": {"logs": self.logs, "report": klog.tuning.TuningReport("", [], {}, None, [], [])},
            "diff": {"a": self.path / "one", "b": self.path / "one"},
            "dump": {"path": self.path / "one"},
            "export_file": {"logs": self.path / "one", "topic": "t", "target": self.path / "out.csv"},
            "groups": {"paths": self.path / "one"},
            "handover": {"path": self.path / "one"},
            "import_file": {"path": self.path / "rows.csv", "logs": self.logs, "topic": "t"},
            "ls": {"path": self.path / "one"},
            "metadata": {"path": self.path / "one"},
            "page_cache": {"path": self.path / "one"},
            "repair": {"path": self.path / "one"},
            "rescue": {"path": self.path / "one", "to": self.path / "rescued"},
            "transactions": {"paths": self.path / "one"},
            "tune": {"directory": self.path / "one", "disk": False},
        }.get(name, {})

    def good(self, parameter: Parameter) -> Any:
        """A value for a required parameter."""
        by_name = {"topic": "t", "name": "t", "own": {}, "partition": 0}
        if parameter.name in by_name:
            return by_name[parameter.name]
        makes: dict[str, Callable[[], Any]] = {
            "int": lambda: 0,
            "str | int": lambda: 0,
            "int | OffsetMetadata": lambda: 0,
            "float": lambda: 0.0,
            "bytes": lambda: b"k",
            "Buffer": lambda: self.batch,
            "WriteableBuffer": lambda: bytearray(self.batch),
            "Buffer | None": lambda: b"v",
            "HasFileno": lambda: self.sink,
            "Isolation": lambda: "log_end",
            "Records": list,
            "Any": list,
            "AppendInfo": lambda: self.log.append([]),
            "LogConfig": klog.LogConfig,
            "LogManager": lambda: self.logs,
            "LogManager | Measured": lambda: self.logs,
            "Mapping[str, Any]": dict,
            "LogConfig | Mapping[str, object]": klog.LogConfig,
            "Position": lambda: 0,
            "TopicPosition": lambda: 0,
            "dict[bytes, int]": dict,
            "Iterable[str]": lambda: ["key"],
            "_Waiting": lambda: self.logs._scheduler,
            "retention.Predicate": lambda: lambda _segment, _next: False,
            "Callable[[int], None] | None": lambda: None,
            "Iterable[ArrowColumns]": list,
            "Iterable[Buffer | FetchData | Slices]": list,
            "list[BatchGroup]": lambda: [self._group()],
            "Rows | ArrowArray | ArrowStream": lambda: record.columns(self.batch),
            "object": object,
        }
        return makes[parameter.annotation]()

    def state(self) -> list[tuple[str, int, bytes]]:
        """The files on disk, and what this process has open for its user."""
        found = []
        for folder, folders, files in os.walk(self.path):
            folders.sort()
            found += [(os.path.join(folder, name), 0, b"") for name in folders]
            for name in sorted(files):
                file = os.path.join(folder, name)
                with open(file, "rb") as opened:
                    found.append((file, os.stat(file).st_ino, opened.read()))
        return found + [(f"stream {fd}", os.fstat(fd).st_ino, b"") for fd in (0, 1, 2)]

    def close(self) -> None:
        self.sink.close()
        self.logs.abandon()
        shutil.rmtree(self.path)


def run(world: World, call: Call, name: str, value: Any) -> None:
    """Make the call with one chosen argument, and take the first item of its result."""
    arguments = {
        one.name: world.good(one)
        for one in call.parameters
        if one.required and one.name not in world.arguments_of(call.name)
    }
    arguments = {**arguments, **world.arguments_of(call.name), name: value}
    target = getattr(world.object_of(call.owner), call.method or "") if call.of_an_object else call.target
    if call.owner is not None and call.method is not None and not call.of_an_object:
        target = getattr(call.owner, call.method)
    by_place = [arguments.pop(one.name) for one in call.parameters if not one.by_keyword and one.name in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = target(*by_place, **arguments)
        if inspect.iscoroutine(found):
            asyncio.run(found)
        elif isinstance(found, Iterator):
            list(itertools.islice(found, 1))
        elif isinstance(found, record.Lists):
            record.encode(found, last_offset_delta=0)
        elif isinstance(found, record.Encoder):
            found.next_group(1)
        elif isinstance(found, klog.Log | klog.LogManager) and found not in (world.log, world.logs):
            abandon(found)


def names(error: BaseException, parameter: str, value: Any) -> bool:
    """An error about one of several records has the number of the record."""
    shown = str(error)
    return parameter.removesuffix("s") in shown or (
        isinstance(error, KlogError)
        and not isinstance(value, Unshown)
        and (repr(value) in shown or str(value) in shown)
    )


CALLS = [call for call in public_calls() if call.method is not None or call.owner not in GIVEN]
CALLS = [call for call in CALLS if not (isinstance(call.target, type) and issubclass(call.target, BaseException))]
CALLS = [call for call in CALLS if call.owner is not klog.clock.Clock and call.parameters]
# Servers are not started hundreds of times here: tests/broker/test_metadata.py, tests/testing/test_test_broker.py.
CALLS = [call for call in CALLS if call.owner not in (klog.Broker, klog.TestBroker)]


def test_the_calls_are_found_in_sources_and_stubs() -> None:
    """The test itself finds wrong arguments in functions, class methods, methods of a base class, and native code with a
    stub."""
    found = {call.name: {one.name for one in call.parameters} for call in CALLS}
    assert found["open_directory"] >= {"path", "create", "read_only"} and found["Log.open"] >= {"path", "topic_id"}
    assert found["Log.fetch"] == {"offset", "max_bytes", "isolation", "min_one_message"}
    assert found["Record"] == {"key", "value", "timestamp", "headers"} and "offset" in found["validate_append"]


def test_an_unknown_annotation_fails_the_test() -> None:
    with pytest.raises(LookupError, match="TAKES"):
        takes("Iterable[Whatever] | None")


def kind(value: Any) -> str:
    return type(value).__name__ if type(value) in (object, Unshown) else f"{type(value).__name__} {str(value)[:24]!r}"


class Worlds:
    """One world for many calls, and a new one after a call that may have changed it."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._world: World | None = None

    def get(self) -> World:
        if self._world is None:
            self._world = World(self._base)
        return self._world

    def drop(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    found = Worlds(tmp_path_factory.mktemp("worlds"))
    yield found
    found.drop()


def verdict(world: World, call: Call, parameter: Parameter, value: Any, *, taken: bool) -> str | None:
    """Describes what is wrong with the call's reaction to a value; None if nothing is wrong."""
    try:
        run(world, call, parameter.name, value)
    except (TypeError, ValueError, KlogError) as error:
        if taken:
            wrong = isinstance(error, TypeError) and not isinstance(error, KlogError)
            return f"accepted, by the annotation: {error}" if wrong else None
        return None if names(error, parameter.name, value) else f"{type(error).__name__} without the name: {error}"
    except OSError as error:
        return None if taken else repr(error)
    except BaseException as error:
        return repr(error)
    return None if taken else "taken"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_wrong_arguments_raise_with_their_name(
    call: Call, worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    changes = call.owner in (klog.Log, klog.LogManager, klog.NamedReader) or call.owner is None
    for parameter in call.parameters:
        takes_it = takes(parameter.annotation)
        if call.name in COPIES and parameter.annotation == "Buffer | None":
            takes_it = either(takes_it, lambda value: value is EVERY_SECOND)
        world = worlds.get()
        before = world.state()
        for value in VALUES:
            if not takes_it(value) and (found := verdict(world, call, parameter, value, taken=False)) is not None:
                wrong.append(f"{call.name}({parameter.name}={kind(value)}): {found}")
        after = world.state()
        if after != before:
            changed = {name for name, *_ in {*map(tuple, after)} ^ {*map(tuple, before)}}
            wrong.append(f"{call.name}({parameter.name}=...): changed {sorted(changed)[:3]}")
            worlds.drop()
        for value in VALUES:
            if takes_it(value) and call.name not in WAITS:
                if (found := verdict(worlds.get(), call, parameter, value, taken=True)) is not None:
                    wrong.append(f"{call.name}({parameter.name}={kind(value)}): {found}")
                if changes and call.name not in CHANGES_NOTHING:
                    worlds.drop()
    assert not wrong, "\n" + "\n".join(wrong)
