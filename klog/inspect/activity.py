"""Watches a log.dir: what is appended, the lag of readers, what is in memory, how busy the disks are.

An ActivityWatcher takes samples; rates are those between two samples. It locks nothing, and reads no records except
those of __consumer_offsets, so it works beside a running klog or broker. Bytes in are the growth of the active segment
and of those that followed it, so a deletion by retention does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from klog.clock import Clock, SystemClock
from klog.disk.device import DeviceCounters, device_counters, device_number
from klog.disk.proc import PROC
from klog.errors import KlogError, UnknownTopicOrPartition
from klog.inspect.files import check_log_dir
from klog.inspect.group_offsets import GroupOffsets
from klog.log import Log
from klog.log.directory.reader_positions import TopicPositions, stored_positions
from klog.log.options import check_tools
from klog.manager import LogManager, open_directory
from klog.manager.directory_set import Paths, as_paths
from klog.values import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class PartitionActivity:
    """One partition. Rates per second; None in the first sample, and where a number is not known. lag: {reader name:
    offsets from its committed one to the log end}; group_lag: the same for Kafka's groups. cached_share: the share of
    the log's pages that are in the page cache."""

    topic: str
    partition: int
    records_per_second: float | None
    bytes_per_second: float | None
    log_end_offset: int
    size: int
    segments: int
    cached_share: float | None
    lag: dict[str, int]
    group_lag: dict[str, int]


@dataclass(frozen=True, slots=True)
class DeviceActivity:
    """One block device, all processes together. utilisation: the share of time with a request under way; queue_length:
    the mean number of requests, the saturation; None in the first sample."""

    device: str
    read_bytes_per_second: float | None
    written_bytes_per_second: float | None
    utilisation: float | None
    queue_length: float | None


@dataclass(frozen=True, slots=True)
class DirectoryActivity:
    """One sample. seconds: since the sample before; None for the first. problems: {partition, or "reader NAME": what
    cannot be read}."""

    seconds: float | None
    partitions: list[PartitionActivity]
    devices: list[DeviceActivity]
    problems: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _LogEnd:
    """Where a log ended at a sample."""

    end: int
    active: int
    active_size: int


class ActivityWatcher:
    """A context manager; one thread. paths: a log.dir, or those of one process. proc_root: /proc, or a test's. Raises
    FileNotFoundError for a directory that is not a log.dir, OSError."""

    def __init__(self, paths: Paths, *, clock: Clock | None = None, proc_root: str = PROC) -> None:
        check_tools(clock, None)
        for path in as_paths(paths):
            check_log_dir(path)
        self._clock = clock or SystemClock()
        self._proc = proc_root
        self._logs: LogManager = open_directory(paths, read_only=True, clock=clock)
        self._sampled_at: float | None = None
        self._ends: dict[tuple[str, int], _LogEnd] = {}
        self._devices: dict[str, DeviceCounters] = {}
        self._groups = GroupOffsets(self._logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._logs.close()

    def sample(self) -> DirectoryActivity:
        """Return the state now, and the rates since the last sample. Raises OSError if the directory cannot be read."""
        now = self._clock.monotonic()
        seconds = None if self._sampled_at is None else max(now - self._sampled_at, 1e-9)
        readers, unreadable = stored_positions(os.fspath(self._logs.paths[0]))
        groups = self._groups.read()
        partitions, problems, ends = [], dict(self._groups.problems), {}
        problems.update({f"reader {name}": str(error) for name, error in unreadable.items()})
        for topic, numbers in self._logs.topics().items():
            for number in numbers:
                try:
                    log = self._logs.log(topic, number)
                    log_end, found = self._partition(log, seconds, readers, groups.get((topic, number), {}))
                except UnknownTopicOrPartition:
                    continue  # deleted meanwhile
                except (KlogError, OSError) as error:
                    problems[f"{topic}-{number}"] = str(error)
                    continue
                ends[topic, number] = log_end
                partitions.append(found)
        devices = list(self._sample_devices(seconds))
        self._sampled_at, self._ends = now, ends
        return DirectoryActivity(seconds, partitions, devices, problems)

    def _partition(
        self,
        log: Log,
        seconds: float | None,
        readers: dict[str, dict[str, TopicPositions]],
        groups: dict[str, int],
    ) -> tuple[_LogEnd, PartitionActivity]:
        end, segments = log.log_end_offset, log.segments
        log_end = _LogEnd(end, segments[-1].base_offset, segments[-1].size) if segments else _LogEnd(end, 0, 0)
        before = self._ends.get((log.topic, log.partition))
        records = grown = None
        if before is not None and seconds is not None:
            records = max(end - before.end, 0) / seconds
            if segments and segments[0].base_offset <= before.active:  # otherwise retention has deleted it
                later = sum(segment.size for segment in segments if segment.base_offset >= before.active)
                grown = max(later - before.active_size, 0) / seconds
        positions = {
            name: topics[log.topic].positions.get(log.partition, 0)
            for name, topics in readers.items()
            if log.topic in topics
        }
        return log_end, PartitionActivity(
            topic=log.topic,
            partition=log.partition,
            records_per_second=records,
            bytes_per_second=grown,
            log_end_offset=end,
            size=log.size,
            segments=len(segments),
            cached_share=_cached_share(log),
            lag=_lags(log, end, positions),
            group_lag=_lags(log, end, groups),
        )

    def _sample_devices(self, seconds: float | None) -> Iterator[DeviceActivity]:
        found: dict[str, DeviceCounters] = {}
        for path in self._logs.paths:
            counters = device_counters(device_number(os.fspath(path)), self._proc)
            if counters is not None:
                found[counters.name] = counters
        for name, now in found.items():
            before = self._devices.get(name)
            if before is None or seconds is None:
                yield DeviceActivity(name, None, None, None, None)
            else:
                yield DeviceActivity(
                    name,
                    (now.read_bytes - before.read_bytes) / seconds,
                    (now.written_bytes - before.written_bytes) / seconds,
                    min((now.busy_ms - before.busy_ms) / 1000 / seconds, 1.0),
                    (now.queue_ms - before.queue_ms) / 1000 / seconds,
                )
        self._devices = found


def _lags(log: Log, end: int, positions: Mapping[str, int]) -> dict[str, int]:
    start = log.log_start_offset
    return {name: max(end - max(position, start), 0) for name, position in positions.items()}


def _cached_share(log: Log) -> float | None:
    try:
        present = log.page_cache().residency
    except OSError:  # the kernel reports it only to users that may write the files
        return None
    return present.share if present.size else None
