"""klog: Apache Kafka's storage engine, embeddable.

    import klog

    with klog.open("data", create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(b"key", b"value")])
        for record in log.read():
            print(record.offset, record.key, record.value)

The files are Kafka's own. Packages, each using those before it: codec, record, disk, segment, log, cleaner, manager;
and inspect, importing, spark, trial, demo, cli.
"""

from klog._start import Interruptible

with Interruptible() as _starting:
    import logging as _logging
    from typing import TYPE_CHECKING, Any

    try:
        from klog import clock, errors, record
        from klog._works import bind as _bind
        from klog.config import LogConfig, ManagerConfig
        from klog.errors import KlogError
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

        _bind()
    except ModuleNotFoundError as error:
        from klog._source_tree import not_compiled

        raise (not_compiled(str(error.name)) or error) from None
    if _starting.is_command:
        import klog.cli as _cli  # noqa: F401 - its main() runs next

if TYPE_CHECKING:
    from klog.cleaner import CompactionStats, PurgeStats
    from klog.inspect import verify

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
    "errors",
    "open",
    "record",
    "verify",
]

_logging.getLogger("klog").addHandler(_logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name == "verify":  # reads files that the engine itself never reads: loaded on first use
        from klog.inspect import verify

        return verify
    if name in ("CompactionStats", "PurgeStats"):  # few processes use them
        from klog import cleaner

        return getattr(cleaner, name)
    raise AttributeError(f"module 'klog' has no attribute {name!r}")
