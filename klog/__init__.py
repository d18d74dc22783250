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

from klog._start import Interruptible, NoCollections

with Interruptible() as _starting, NoCollections():
    import importlib as _importlib
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
        from klog.record import Record, RecordBatch, TimestampType

        _bind()
    except ModuleNotFoundError as error:
        from klog._source_tree import not_compiled

        raise (not_compiled(str(error.name)) or error) from None
    if _starting.is_command:
        import klog.cli as _cli  # noqa: F401 - its main() runs next

if TYPE_CHECKING:
    from klog.cleaner import CompactionStats, PurgeStats
    from klog.inspect.verify import verify
    from klog.manager import LogManager, NamedReader
    from klog.manager import open_directory as open

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


# Name → where it is. These are loaded when they are first used: a process that reads one partition, such as a task of
# Spark, needs none of them.
_LATER = {
    "open": ("klog.manager", "open_directory"),
    "LogManager": ("klog.manager", "LogManager"),
    "NamedReader": ("klog.manager", "NamedReader"),
    "CompactionStats": ("klog.cleaner", "CompactionStats"),
    "PurgeStats": ("klog.cleaner", "PurgeStats"),
    "verify": ("klog.inspect", "verify"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'klog' has no attribute {name!r}")
    module, attribute = _LATER[name]
    found = globals()[name] = getattr(_importlib.import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
