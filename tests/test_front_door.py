"""The public API that programs rely on: supported names are as specified, others are absent.

A name of a feature that does not exist yet is absent, so that `hasattr` is correct.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.spark import options as spark_options

ROOT = Path(__file__).resolve().parent.parent

KEYWORDS = {
    klog.open: "path *create *read_only *config *recovery *durability *clock",
    klog.Log.open: "path *config *recovery *read_only *durability *clean_shutdown *recovery_point *log_start_offset "
    "*high_watermark *topic_id *clock",
    klog.LogManager.create_topic: "self name partitions config topic_id",
    klog.LogManager.alter_topic: "self name config",
    klog.LogManager.delete_topic: "self name",
    klog.LogManager.move: "self topic partition directory",
    klog.LogManager.log: "self topic partition",
    klog.LogManager.health: "self",
    klog.LogManager.rates: "self",
    klog.Broker: "path *listeners *config",
    klog.TestBroker: "*topics *config",
    klog.LogManager.append: "self topic records *compression",
    klog.Log.append: "self records *compression",
    klog.Log.append_batches: "self buffer *origin *leader_epoch",
    klog.Log.metrics: "self",
    klog.Log.read: "self start stop *isolation *include_control",
    klog.Log.tail: "self start *timeout",
    klog.Log.count: "self start stop",
    klog.Log.fetch: "self offset max_bytes *isolation *min_one_message",
    klog.Log.offset_for_timestamp: "self ms",
    klog.Log.aborted_transactions: "self start stop",
    klog.Log.truncate_to: "self offset",
    klog.Log.truncate_fully_and_start_at: "self offset log_start_offset",
    klog.Log.delete_records: "self before",
    klog.Log.apply_retention: "self",
    klog.Log.update_high_watermark: "self offset",
    klog.Log.maybe_increment_high_watermark: "self offset",
    klog.Log.maybe_increment_log_start_offset: "self offset",
    klog.Log.end_offset_for: "self epoch",
    klog.Log.compact: "self *roll *rounds *dry_run *progress",
    klog.Log.purge_key: "self key *roll *dry_run *progress",
    klog.verify: "path",
    klog.metrics.prometheus: "logs",
    klog.metrics.opentelemetry: "logs",
    klog.Record: "key value timestamp headers",
}
DEFAULTS = {
    klog.Record: {"timestamp": None, "headers": ()},
    klog.open: {"create": False, "read_only": False, "config": None, "recovery": "strict", "durability": "os"},
    klog.Log.open: {"recovery": "strict", "read_only": False, "durability": None, "clean_shutdown": None},
    klog.LogManager.create_topic: {"partitions": 1, "config": None, "topic_id": None},
    klog.LogManager.log: {"partition": 0},
    klog.Log.append_batches: {"origin": "client", "leader_epoch": None},
    klog.Log.read: {"start": None, "stop": None, "isolation": "high_watermark", "include_control": False},
    klog.Log.tail: {"start": "latest", "timeout": None},
    klog.Log.truncate_fully_and_start_at: {"log_start_offset": None},
    klog.Log.compact: {"roll": False, "rounds": None, "dry_run": False, "progress": None},
    klog.Log.fetch: {"max_bytes": 1 << 20, "isolation": "log_end", "min_one_message": True},
}
LATER: dict[Any, str] = {
    klog: "sim",
}


def _name(thing: object) -> str:
    return getattr(thing, "__qualname__", getattr(thing, "__name__", repr(thing)))


@pytest.mark.parametrize("function", KEYWORDS, ids=_name)
def test_parameters_are_as_specified(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    for word in KEYWORDS[function].split():
        parameter = parameters[word.lstrip("*")]
        assert (parameter.kind is parameter.KEYWORD_ONLY) == word.startswith("*"), word
    positional = [name for name, parameter in parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY]
    promised = [word for word in KEYWORDS[function].split() if not word.startswith("*")]
    assert positional[: len(promised)] == promised


@pytest.mark.parametrize("function", DEFAULTS, ids=_name)
def test_defaults_are_as_specified(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in DEFAULTS[function]} == DEFAULTS[function]


@pytest.mark.parametrize("owner", LATER, ids=_name)
def test_later_names_are_absent(owner: Any) -> None:
    assert [name for name in LATER[owner].split() if hasattr(owner, name)] == []


@pytest.mark.parametrize("durability", ["os", "interval", "sync"])
def test_every_durability_exists(tmp_path: Path, durability: Any) -> None:
    with klog.open(tmp_path, create=True, durability=durability) as logs:
        logs.create_topic("t")
        logs.log("t").append([(None, b"x")])


def test_every_public_name_exists() -> None:
    assert [name for name in klog.__all__ if not hasattr(klog, name)] == []
    assert {"Log", "LogConfig", "LogManager", "ManagerConfig", "Record", "TimestampType", "KlogError"} <= {
        *klog.__all__
    }
    assert klog.clock.ManualClock(5).wall_ms() == 5


def test_a_log_reports_its_content(tmp_path: Path) -> None:
    clock = klog.clock.ManualClock(1_700_000_000_000)
    with klog.open(tmp_path / "data", create=True, clock=clock) as logs:
        logs.create_topic("events", partitions=2, config={"segment.bytes": 1 << 20})
        log = logs.log("events", 1)
        records = [(b"k", b"v"), (None, b"v", 7), (b"k", None, 8, [("h", b"x"), ("n", None)]), klog.Record(b"k", b"v")]
        info = log.append(records, compression=("zstd", 3))
        clock.advance(1000)

        assert (info.first_offset, info.last_offset, info.count, info.log_append_time) == (0, 3, 4, -1)
        assert info.max_timestamp == 1_700_000_000_000
        assert logs.topics() == {"events": [0, 1]}
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 4, 4, 4)
        assert log.leader_epochs == [(0, 0)] and log.producers == {} and log.aborted_transactions(0, 4) == []
        assert log.topic_id is not None and log.config["segment.bytes"] == log.config.segment_bytes == 1 << 20
        assert {"seconds", "segments_scanned", "bytes_truncated", "reason"} <= {*dir(log.recovery)}
        (segment,) = log.segments
        assert (segment.base_offset, segment.next_offset, segment.size) == (0, 4, log.size)
        assert segment.max_timestamp == info.max_timestamp and os.path.samefile(os.path.dirname(segment.path), log.path)
        assert log.count() == 4 and log.count(1, 3) == 2
        found = log.offset_for_timestamp(8)
        assert found == (1_700_000_000_000, 0) and (found.timestamp, found.offset) == found
        fetched = log.fetch(2)
        assert fetched.size == len(fetched.memory()) == log.size and fetched.high_watermark == 4
        assert fetched.aborted_transactions == ()
        assert [record.offset for record in log.tail("earliest", timeout=0)] == [0, 1, 2, 3]
        assert log.verify().problems == []
        log.flush()
        log.roll()
        assert len(log.segments) == 2
    assert klog.verify(tmp_path / "data").problems == []


def test_health_is_its_findings(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        report = logs.health()
    assert [*report] == [*report.findings] != []


def test_a_record_has_every_field(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "events-0") as log:
        log.append([klog.Record(key=b"k", value=None, timestamp=5, headers=[("h", b"1")])])
        (record,) = log.read()
    assert (record.key, record.value, record.timestamp, list(record.headers)) == (b"k", None, 5, [("h", b"1")])
    assert (record.offset, record.timestamp_type, record.leader_epoch) == (0, klog.TimestampType.CREATE_TIME, 0)
    assert (record.producer_id, record.producer_epoch, record.sequence) == (-1, -1, -1)
    assert (record.is_transactional, record.is_control, record.control_type) == (False, False, None)


def test_a_batch_has_every_field() -> None:
    data = klog.record.encode([(b"k", b"v", 5)], base_offset=9, leader_epoch=2)
    (batch,) = klog.record.decode(data)
    fields = (
        "base_offset last_offset next_offset count size magic compression timestamp_type base_timestamp max_timestamp "
        "leader_epoch producer_id producer_epoch base_sequence is_transactional is_control delete_horizon_ms"
    )
    values = (
        9,
        9,
        10,
        1,
        len(data),
        2,
        "none",
        klog.TimestampType.CREATE_TIME,
        5,
        5,
        2,
        -1,
        -1,
        -1,
        False,
        False,
        None,
    )
    assert tuple(getattr(batch, name) for name in fields.split()) == values
    assert batch.crc == int.from_bytes(data[17:21], "big")
    assert klog.record.validate(data) == 1
    assert hasattr(klog.record.columns(data), "__arrow_c_array__")


def test_a_reader_is_an_arrow_stream(tmp_path: Path) -> None:
    import pyarrow as pa

    with klog.Log.open(tmp_path / "events-0") as log:
        log.append([(b"k", b"v", 5), (b"k", b"v", -1)])
        table = pa.table(log.read())
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = [pa.int64(), pa.timestamp("ms", "UTC"), pa.int8(), pa.binary(), pa.binary()]
    assert table.schema.names == ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert table.schema.types[:5] == types
    headers = table.schema.field("headers").type
    assert [(f.name, f.type) for f in headers.value_type] == [(f.name, f.type) for f in header]
    assert table["timestamp"].null_count == 1


def test_text_instead_of_bytes_raises_with_advice(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "events-0") as log, pytest.raises(TypeError, match=r"\.encode\(\)"):
        log.append([("k", "v")])


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True), pytest.raises(klog.errors.AlreadyLocked, match=f"process {os.getpid()}"):
        klog.open(tmp_path)


def test_a_missing_close_warns(tmp_path: Path) -> None:
    klog.open(tmp_path, create=True).close()
    with pytest.warns(ResourceWarning, match="never closed"):
        klog.open(tmp_path)


def test_an_unknown_key_raises_with_the_nearest_one() -> None:
    with pytest.raises(klog.errors.InvalidConfig, match=r"did you mean segment\.bytes"):
        klog.LogConfig({"segment.byte": 1})


def test_errors_have_one_base_class_and_kafkas_codes() -> None:
    classes = [value for value in vars(klog.errors).values() if isinstance(value, type)]
    assert all(issubclass(cls, klog.KlogError) for cls in classes)
    codes = {"OffsetOutOfRange": 1, "CorruptBatch": 2, "UnknownTopicOrPartition": 3, "TopicExists": 36}
    assert {name: getattr(klog.errors, name).code for name in codes} == codes


def _loaded(code: str, *, whole: bool = False) -> set[str]:
    """The modules in sys.modules of a new interpreter after some code; only the top-level ones, unless whole."""
    shown = "sys.modules" if whole else "{name.split('.')[0] for name in sys.modules}"
    script = f"{code}\nimport sys\nprint(*sorted({shown}), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return {*done.stderr.split()}


def test_import_is_light() -> None:
    loaded = _loaded("import klog")
    assert "klog" in loaded
    heavy = {"numpy", "pyarrow", "pyspark", "click", "pandas", "rich"}
    assert loaded.isdisjoint(
        {*heavy, "typing_extensions"}
    )  # the last is not a dependency, but is in every test's .venv


def test_import_loads_nothing_that_is_not_used() -> None:
    """Every command, test plugin and task of Spark imports it first."""
    loaded = _loaded("import klog", whole=True) - _loaded("", whole=True)
    own = {"klog", "klog._start", "klog.locks", "klog.errors"}
    assert {name for name in loaded if not name.startswith(("_cython_", "cython_runtime"))} <= {
        *own,
        "__future__",
        "gc",
    }


@pytest.mark.parametrize("before", ["import klog", "import klog, logging"])
def test_without_a_configuration_of_logging_nothing_is_printed(before: str, tmp_path: Path) -> None:
    """This holds whether the program has imported logging or not, and for every logger of klog."""
    warn = "klog.logger.logger_of('log').warning('event=test'); "
    own = "logging.getLogger('klog.log').warning('event=test')"
    first = f"{own}; {warn}" if "logging" in before else warn
    opened = f"klog.open({str(tmp_path)!r}, create=True).close()"
    code = f"{before}; {opened}; {first}import logging; {warn}{own}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""


def test_a_reader_of_one_partition_loads_what_it_needs() -> None:
    """It does not load the manager, the cleaner, or modules that few processes use: each task of Spark begins with it."""
    loaded = _loaded("import klog; klog.Log", whole=True)
    assert {"klog.log.log", "klog.record._batch"} <= loaded
    assert loaded.isdisjoint({"klog.manager", "klog.cleaner", "klog.inspect", "klog.cli", "klog.spark"})
    assert loaded.isdisjoint({"asyncio", "cramjam", "difflib", "hashlib", "lz4.frame", "random", "shutil", "tempfile"})
    assert "zstandard" not in loaded


def test_opening_loads_neither_the_cleaner_nor_readers(tmp_path: Path) -> None:
    """They are loaded by start(), reader() and tail(). The number is what it takes to open, append and read."""
    code = (
        f"import klog; logs = klog.open({str(tmp_path / 'data')!r}, create=True); logs.create_topic('t'); "
        "logs.append('t', [(b'k', b'v')]); assert len(list(logs.read('t'))) == 1; logs.close()"
    )
    loaded = {name for name in _loaded(code, whole=True) if name.startswith("klog")}
    assert loaded.isdisjoint({"klog.cleaner", "klog.health", "klog.inspect", "klog.decode", "klog.manager.summary"})
    assert loaded.isdisjoint({"klog.manager.named_reader", "klog.manager.topic_tail", "klog.manager.cleaning"})
    assert len(loaded) <= 230, len(loaded)


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("logs = klog.open('data', create=True)", "logs.close()"),
        ("broker = klog.Broker('data', listeners=['127.0.0.1:0']).start(); logs = broker.logs", "broker.stop()"),
    ],
)
def test_a_program_has_imported_what_its_logs_need(opened: str, closed: str, tmp_path: Path) -> None:
    """A signal handler of the program could interrupt a later import, or no descriptor may be left for it."""
    code = f"""
import os, sys, klog
os.chdir({str(tmp_path)!r})
{opened}
before = {{*sys.modules}}
logs.create_topic("t")
log = logs.log("t")
for value in b"12":
    log.append([(None, bytes([value]))])
log.roll()
logs.append("t", [(b"key", b"3")])
log.flush()
assert log.count() == 3
log.truncate_to(2)
log.apply_retention()
log.delete_records(1)
logs.append("t", [(b"key", b"3")])
log.close()
assert logs.log("t").log_end_offset == 3
logs.delete_topic("t")
later = [name for name in sys.modules if name.startswith("klog") and name not in before]
assert not later, later
{closed}
"""
    _loaded(code)


@pytest.mark.parametrize("opening", ["klog.open('data', create=True)", "klog.Log.open('data/t-0')"])
def test_a_program_that_writes_has_all_codecs_when_it_opens(opening: str, tmp_path: Path) -> None:
    """At their first use there may be no descriptor left, or no privilege to read them."""
    (tmp_path / "data").mkdir()
    loaded = _loaded(f"import os, klog; os.chdir({str(tmp_path)!r}); {opening}", whole=True)
    assert {"cramjam", "lz4.block", "lz4.frame", "zstandard"} <= loaded


@pytest.mark.parametrize("name", klog.__all__)
def test_a_name_that_is_loaded_later_is_there(name: str) -> None:
    script = f"import klog; assert '{name}' in dir(klog); assert klog.{name} is klog.{name}; from klog import {name}"
    assert _loaded(script) >= {"klog"}


@pytest.mark.parametrize("name", klog._MODULES)
def test_dir_of_a_module_has_its_api_alone(name: str) -> None:
    """It contains no imported module, none of its own submodules, and no name of typing or of the standard library."""
    module = getattr(klog, name)
    assert dir(module) == sorted(module.__all__)
    for each in dir(module):
        thing = getattr(module, each)
        assert not each.startswith("_") and (not inspect.ismodule(thing) or thing is klog.protocol.messages), each
        assert getattr(thing, "__module__", "klog").split(".")[0] in ("klog", "builtins", "collections", "typing"), each


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'klog' has no attribute 'opne'"):
        klog.opne  # noqa: B018


def test_the_import_leaves_the_garbage_collector_as_it_was() -> None:
    _loaded("import gc, klog; assert gc.isenabled()")
    _loaded("import gc; gc.disable(); import klog; assert not gc.isenabled()")


def test_collections_of_young_objects_do_not_look_through_what_was_imported() -> None:
    _loaded("import gc, klog; klog.Broker; assert len(gc.get_objects(0)) < 2000 < len(gc.get_objects(2))")
    _loaded(
        "import gc, klog; gc.freeze(); count = gc.get_freeze_count(); klog.Log; assert gc.get_freeze_count() > count / 2"
    )


def test_help_is_light() -> None:
    loaded = _loaded(
        "from klog.cli import cli\n"
        "try: cli.main(['--help'], prog_name='klog')\n"
        "except SystemExit as done: assert not done.code"
    )
    assert "click" in loaded
    assert loaded.isdisjoint({"numpy", "pyarrow", "pyspark", "pandas", "rich"})


@pytest.mark.parametrize(
    "verb",
    [
        *(
            "demo",
            "import",
            "export",
            "cat",
            "dump",
            "verify",
            "ls",
            "cache",
            "bench disk",
            "compact",
            "config explain",
        ),
        *("groups", "transactions", "diff", "repair", "rescue", "health", "tune", "top"),
    ],
)
def test_verb_exists_with_json(verb: str) -> None:
    command = [sys.executable, "-m", "klog.cli", *verb.split(), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "--json" in done.stdout


def test_unknown_verb() -> None:
    command = [sys.executable, "-m", "klog.cli", "unknown"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and "No verb 'unknown'" in done.stderr


def test_spark_options_are_as_specified() -> None:
    assert {*spark_options.SERVED} == {
        *("path", "paths", "subscribe", "subscribePattern", "assign", "includeHeaders", "view"),
        *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("columns", "metadataColumns", "isolationLevel", "kafka.isolation.level", "upTo", "failOnDataLoss"),
        *("onCorrupt", "verifyCrc", "minPartitions", "maxRecordsPerPartition", "targetSplitBytes", "parallelism"),
        *("pushdown", "metrics"),
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"),
        *("commitGroup", "checkpointLocation"),
        *("valueFormat", "valueSchema", "keyFormat", "keySchema", "schemas", "onBadValue"),
    }
