"""Makes recommendations from a workload, its profile and the figures of the disk. Reads nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from klog.config import LogConfig, ManagerConfig
from klog.shown import size
from klog.tuning.profiles import Profile
from klog.tuning.workload import Workload
from klog.values import dataclass

_MAP_ENTRY_BYTES = 24
_YEAR_SECONDS = 366 * 86_400
_FLUSH_SHARE_MAX = 0.1  # the share of the time that flushes may take
_KEYS_OF_IO = ("klog.io.preallocate", "klog.io.read", "klog.io.read.ahead.bytes", "klog.io.write")


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """The measurement of a disk. flush_ms: the median time of a durable append; append_rate: bytes per second until
    they are on disk; settings: {key: (value, reason)}, as the trial advises."""

    flush_ms: float
    append_rate: float
    settings: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One setting. topic: None for a broker-level key. current, recommended: as in a properties file; current: None if
    unknown, because the directory does not hold the topic's configuration."""

    topic: str | None
    key: str
    current: str | None
    recommended: str
    reason: str
    effect: str


def for_topic(
    workload: Workload, profile: Profile, why: str, config: LogConfig | None, disk: DiskFigures | None
) -> Iterator[Recommendation]:
    """Yield what to change in a topic's configuration. config, disk: None if not known."""
    reason = f"profile {profile.name}, because of {why}"
    for key, wanted in profile.settings.items():
        given = None if config is None else config[key]
        if given == wanted:
            continue
        value: int | bool = wanted
        if key == "flush.ms" and disk is not None and disk.flush_ms > _FLUSH_SHARE_MAX * value:
            value = max(round(disk.flush_ms / _FLUSH_SHARE_MAX), 1)  # the profile's value is too short for this disk
        if given != value:
            effect = _effect(key, value, workload, disk)
            yield Recommendation(workload.topic, key, _current(config, key), text(value), reason, effect)
    for key, (setting, cause) in (disk.settings if disk is not None else {}).items():
        current = _current(config, key) if key in _KEYS_OF_IO else setting
        if current != setting:
            yield Recommendation(workload.topic, key, current, setting, "the measurement of this disk", cause)


def _current(config: LogConfig | None, key: str) -> str | None:
    return None if config is None else text(config[key])


def for_broker(
    workloads: Sequence[Workload], compacted: Sequence[str], config: ManagerConfig, cores: int
) -> Iterator[Recommendation]:
    """Yield what to change in server.properties. compacted: the compacted topics."""
    records = max((each.records for each in workloads if each.topic in compacted), default=0)
    memory, load = config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_load_factor
    needed = round(records * _MAP_ENTRY_BYTES / load)
    if needed > memory / max(config.log_cleaner_threads, 1):
        wanted = min(needed * max(config.log_cleaner_threads, 1), _map_max(config))
        if wanted > memory:
            passes = -(-needed // max(memory // max(config.log_cleaner_threads, 1), 1))
            yield Recommendation(
                None, "log.cleaner.dedupe.buffer.size", text(memory), text(wanted),
                f"about {records:,} records in the largest compacted topic, and {_MAP_ENTRY_BYTES} bytes for each key",
                f"one pass of a full cleaning instead of up to {passes}",
            )  # fmt: skip
    partitions = sum(each.partitions for each in workloads)
    threads = min(cores, max(partitions, 1))
    if threads > config.num_recovery_threads_per_data_dir:
        yield Recommendation(
            None, "num.recovery.threads.per.data.dir", text(config.num_recovery_threads_per_data_dir), text(threads),
            f"{partitions} partitions and {cores} processors",
            f"up to {threads} partitions are recovered at a time after a crash",
        )  # fmt: skip


def _map_max(config: ManagerConfig) -> int:
    """Return the largest useful value: the key map of one thread is at most 2 GiB, as in Kafka."""
    return (2**31 - 1) * max(int(config.log_cleaner_threads), 1)


def text(value: object) -> str:
    """Return a value as in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _effect(key: str, value: int | bool, workload: Workload, disk: DiskFigures | None) -> str:
    rate = workload.bytes_per_second / max(workload.partitions, 1)
    if key == "segment.bytes":
        count = max(-(-workload.bytes // value), workload.partitions)
        rolls = f", a roll every {_span(value / rate)} at the rate seen" if value < rate * _YEAR_SECONDS else ""
        sync = f"; a flush of a whole segment takes {_span(value / disk.append_rate)}" if disk else ""
        segments = "1 segment" if count == 1 else f"{count:,} segments"
        return f"about {segments} instead of {workload.segments:,}{rolls}{sync}"
    if key == "segment.ms":
        held = f"; at the rate seen {size(round(rate * value / 1000))} fall into that time" if rate else ""
        return f"a segment is closed after {_span(value / 1000)} at the latest{held}"
    if key == "flush.messages":
        lost = value * workload.record_bytes
        return f"a power cut loses at most {value:,} records, {size(round(lost))}, of a partition"
    if key == "flush.ms":
        cost = f"; a flush takes {disk.flush_ms:.2f} ms, {disk.flush_ms / value:.2%} of the time" if disk else ""
        return f"a power cut loses at most the last {_span(value / 1000)}{cost}"
    if key == "index.interval.bytes":
        batches = max(round(value / workload.batch_bytes), 1)
        entries = workload.bytes // max(value, round(workload.batch_bytes))
        headers = "1 batch header" if batches == 1 else f"{batches:,} batch headers"
        return f"a lookup reads about {headers} after an index entry; {size(entries * 8)} of index"
    if key == "segment.index.bytes":
        return f"space for {value // 8:,} index entries of a segment"
    return "the file system assigns the blocks of a segment in advance" if value else "no blocks are assigned ahead"


def _span(seconds: float) -> str:
    for length, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} seconds" if seconds >= 1 else f"{seconds * 1000:,.1f} ms"
