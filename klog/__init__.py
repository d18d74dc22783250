"""klog: Apache Kafka's storage engine, embeddable.

    import klog

    with klog.open("data", create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(b"key", b"value")])
        for record in log.read():
            print(record.offset, record.key, record.value)

The files are Kafka's own. Packages: codec, record, disk, segment, log, cleaner, manager; for Kafka's clients protocol,
network, security, coordinator, broker, handover, testing; and internal_topics, decode, health, metrics, inspect,
repairing, trial, tuning, importing, exporting, polars, duckdb, spark, demo, cli.
"""

from __future__ import annotations

from klog._start import Interruptible as _Interruptible
from klog._start import NoCollections as _NoCollections
from klog._start import log_works as _log_works

try:
    import klog.locks  # noqa: F401 - the smallest extension: is klog compiled?
except ModuleNotFoundError as error:
    from klog._source_tree import not_compiled

    raise (not_compiled(str(error.name)) or error) from None

with _Interruptible() as _starting, _NoCollections():
    if _starting.is_command:
        import klog.cli as _cli  # noqa: F401 - its main() runs next

TYPE_CHECKING = False  # as in typing, whose import takes longer than that of klog
if TYPE_CHECKING:
    from typing import Any

    from klog import (  # noqa: F401  in _MODULES
        clock,
        codec,
        config,
        decode,
        disk,
        duckdb,
        errors,
        exporting,
        handover,
        importing,
        inspect,
        internal_topics,
        metrics,
        network,
        polars,
        progress,
        protocol,
        record,
        repairing,
        security,
        spark,
        testing,
        trial,
        tuning,
    )
    from klog.broker import Broker
    from klog.cleaner import CompactionStats, PurgeStats
    from klog.config import LogConfig, ManagerConfig
    from klog.errors import KlogError
    from klog.inspect.verify import verify
    from klog.log import (
        AppendInfo,
        FetchData,
        FetchRange,
        LatestByKey,
        Log,
        LogAsOf,
        LogReader,
        Outgoing,
        ProducerState,
        Recovery,
        TimestampOffset,
    )
    from klog.manager import LogManager, NamedReader, partition_for
    from klog.manager import open_directory as open
    from klog.record import Record, RecordBatch, TimestampType
    from klog.testing import TestBroker

__version__ = "0.1.0"
__all__ = [
    "AppendInfo",
    "Broker",
    "CompactionStats",
    "FetchData",
    "FetchRange",
    "KlogError",
    "LatestByKey",
    "Log",
    "LogAsOf",
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
    "TestBroker",
    "TimestampOffset",
    "TimestampType",
    "clock",
    "codec",
    "config",
    "disk",
    "errors",
    "metrics",
    "open",
    "partition_for",
    "progress",
    "protocol",
    "record",
    "verify",
]

# The names in klog → the module that has it. Each is loaded when it is first used: to import klog costs next to
# nothing, and a process that reads one partition, such as a task of Spark, loads no manager.
_PLACES = {
    "AppendInfo": "klog.log",
    "Broker": "klog.broker",
    "CompactionStats": "klog.cleaner",
    "FetchData": "klog.log",
    "FetchRange": "klog.log",
    "KlogError": "klog.errors",
    "LatestByKey": "klog.log",
    "Log": "klog.log",
    "LogAsOf": "klog.log",
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
    "TestBroker": "klog.testing",
    "TimestampOffset": "klog.log",
    "TimestampType": "klog.record",
    "open": "klog.manager",
    "partition_for": "klog.manager",
    "verify": "klog.inspect",
}
# `from klog import *` takes neither polars and duckdb, which would hide the libraries of these names, nor spark.
_MODULES = (
    "clock",
    "codec",
    "config",
    "decode",
    "disk",
    "duckdb",
    "errors",
    "exporting",
    "handover",
    "importing",
    "inspect",
    "internal_topics",
    "metrics",
    "network",
    "polars",
    "progress",
    "protocol",
    "record",
    "repairing",
    "security",
    "spark",
    "testing",
    "trial",
    "tuning",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    with _NoCollections():
        if name in _MODULES:
            return import_module(f"klog.{name}")
        if name not in _PLACES:
            raise AttributeError(f"module 'klog' has no attribute {name!r}")
        module = import_module(_PLACES[name])
        found = globals()[name] = getattr(module, "open_directory" if name == "open" else name)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})


# Methods of Log that packages above klog.log implement. Each is imported when it is first called.


def _compact(log: Any, **how: Any) -> Any:
    from klog.cleaner import compact

    return compact(log, **how)


def _purge_key(log: Any, key: bytes, **how: Any) -> Any:
    from klog.cleaner import purge_key

    return purge_key(log, key, **how)


def _verify(log: Any, progress: Any) -> Any:
    from klog.inspect.verify import verify_log

    return verify_log(log, progress)


def _plot(log: Any, cached: Any, ax: Any) -> Any:
    from klog.inspect.log_plot import plot

    return plot(log, cached, ax)


def _reopen(path: str, config: Any, recovery: Any) -> Any:
    """The log of a reader that another process has sent."""
    from klog.log import Log
    from klog.log.opening import of_a_reader

    return of_a_reader(Log.open(path, read_only=True, config=config, recovery=recovery)._core)


_log_works.update(reopen=_reopen, compact=_compact, purge_key=_purge_key, verify=_verify, plot=_plot)
