"""klog: Apache Kafka's storage engine, embeddable.

    import klog

    with klog.open("data", create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(b"key", b"value")])
        for record in log.read():
            print(record.offset, record.key, record.value)

The files are Kafka's own. Packages, each using those before it: codec, record, disk, segment, log, cleaner, manager;
and inspect, importing, polars, spark, trial, demo, cli.
"""

import importlib as _importlib
import logging as _logging
from typing import TYPE_CHECKING, Any

from klog._start import Interruptible as _Interruptible
from klog._start import NoCollections as _NoCollections

try:
    import klog.locks  # noqa: F401 - the smallest extension: is klog compiled?
except ModuleNotFoundError as error:
    from klog._source_tree import not_compiled

    raise (not_compiled(str(error.name)) or error) from None

with _Interruptible() as _starting, _NoCollections():
    if _starting.is_command:
        import klog.cli as _cli  # noqa: F401 - its main() runs next

if TYPE_CHECKING:
    from klog import clock, codec, config, disk, errors, polars, progress, record, spark  # noqa: F401  in _MODULES
    from klog.cleaner import CompactionStats, PurgeStats
    from klog.config import LogConfig, ManagerConfig
    from klog.errors import KlogError
    from klog.inspect.verify import verify
    from klog.log import (
        AppendInfo,
        FetchData,
        FetchRange,
        Log,
        LogReader,
        Outgoing,
        ProducerState,
        Recovery,
        TimestampOffset,
    )
    from klog.manager import LogManager, NamedReader
    from klog.manager import open_directory as open
    from klog.record import Record, RecordBatch, TimestampType

__version__ = "0.1.0"
__all__ = [
    "AppendInfo",
    "CompactionStats",
    "FetchData",
    "FetchRange",
    "KlogError",
    "Log",
    "LogConfig",
    "LogManager",
    "LogReader",
    "ManagerConfig",
    "NamedReader",
    "Outgoing",
    "ProducerState",
    "PurgeStats",
    "Record",
    "RecordBatch",
    "Recovery",
    "TimestampOffset",
    "TimestampType",
    "clock",
    "codec",
    "config",
    "disk",
    "errors",
    "open",
    "progress",
    "record",
    "verify",
]

_logging.getLogger("klog").addHandler(_logging.NullHandler())


# What klog gives → the module that has it. Each is loaded when it is first used: to import klog costs next to nothing,
# and a process that reads one partition, such as a task of Spark, loads no manager.
_PLACES = {
    "AppendInfo": "klog.log",
    "CompactionStats": "klog.cleaner",
    "FetchData": "klog.log",
    "FetchRange": "klog.log",
    "KlogError": "klog.errors",
    "Log": "klog.log",
    "LogConfig": "klog.config",
    "LogManager": "klog.manager",
    "LogReader": "klog.log",
    "ManagerConfig": "klog.config",
    "NamedReader": "klog.manager",
    "Outgoing": "klog.log",
    "ProducerState": "klog.log",
    "PurgeStats": "klog.cleaner",
    "Record": "klog.record",
    "RecordBatch": "klog.record",
    "Recovery": "klog.log",
    "TimestampOffset": "klog.log",
    "TimestampType": "klog.record",
    "open": "klog.manager",
    "verify": "klog.inspect",
}
# `from klog import *` takes neither polars, which would hide the library of that name, nor spark.
_MODULES = ("clock", "codec", "config", "disk", "errors", "polars", "progress", "record", "spark")


def __getattr__(name: str) -> Any:
    with _NoCollections():
        if name in _MODULES:
            return _importlib.import_module(f"klog.{name}")
        if name not in _PLACES:
            raise AttributeError(f"module 'klog' has no attribute {name!r}")
        module = _importlib.import_module(_PLACES[name])
        found = globals()[name] = getattr(module, "open_directory" if name == "open" else name)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})
