"""snapshot(): all metrics of a manager as samples, one for each MBean that Kafka would have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from klog.arguments import flag, having
from klog.disk.device import device_counters, device_number, disk_space
from klog.manager import LogManager
from klog.metrics.names import DEFINITIONS, Definition, Kind
from klog.values import dataclass

_TIMES = ("Count", "Mean", "50thPercentile", "99thPercentile", "Max")
_QUOTED = re.compile(r'[,=:"*?\n]')


@dataclass(frozen=True, slots=True)
class Sample:
    """One MBean at one moment. attributes: of a gauge Value; of a counter Count; of a meter also MeanRate,
    OneMinuteRate, FiveMinuteRate and FifteenMinuteRate, per second; of a timer Count, in milliseconds Mean,
    50thPercentile, 99thPercentile and Max, and for flushes and rolls the rates."""

    domain: str
    type: str
    name: str
    tags: Mapping[str, str]
    kind: Kind
    help: str
    attributes: Mapping[str, float]

    @property
    def mbean(self) -> str:
        """The object name, such as kafka.log:type=Log,name=Size,topic=t,partition=0."""
        tags = "".join(f",{tag}={_quoted(value)}" for tag, value in self.tags.items())
        return f"{self.domain}:type={self.type},name={self.name}{tags}"


def _quoted(value: str) -> str:
    """Return the value of a tag, quoted as by Java's ObjectName.quote if it needs quotes."""
    if not _QUOTED.search(value):
        return value
    escaped = re.sub(r'(["*?\\])', r"\\\1", value).replace("\n", r"\n")
    return f'"{escaped}"'


class Measured(Protocol):
    """A broker: it has logs, and metrics of its own."""

    @property
    def logs(self) -> LogManager: ...

    def samples(self) -> list[Sample]: ...


def snapshot(logs: LogManager | Measured, *, page_cache: bool = False) -> list[Sample]:
    """Return every metric of a LogManager, or of a klog.Broker with its logs, that has a value now. Logs that are not
    loaded have none.

    page_cache: also the content of the page cache, which needs system calls for each segment. Counters begin at 0 when
    the manager is opened; those of a device when the machine is booted. Raises TypeError.
    """
    if not isinstance(logs, LogManager):
        having("logs", logs, ("samples",), "a klog.LogManager or klog.Broker")
        return [*logs.samples(), *snapshot(logs.logs, page_cache=page_cache)]
    values = logs.metrics(page_cache=flag("page_cache", page_cache))
    rates = logs.rates()
    values["PartitionCount"] = {"": len(values["Size"])}
    values["ProducerIdCount"] = {"": sum(values["ProducerIdCount"].values())}
    values |= _directories(logs) | _devices(logs)
    found: list[Sample] = []
    for definition in DEFINITIONS:
        name = definition.name
        if definition.kind == "meter":
            for topic, rate in rates.get(name, {}).items():
                found.append(_sample(definition, topic, rate.attributes()))
        elif definition.kind == "timer":
            if name + "Count" in values:
                times = {attribute: values[name + attribute][""] for attribute in _TIMES}
                found.append(_sample(definition, "", (rates[name][""].attributes() if name in rates else {}) | times))
        else:
            attribute = "Value" if definition.kind == "gauge" else "Count"
            for subject, value in values.get(name, {}).items():
                found.append(_sample(definition, subject, {attribute: value}))
    return found


def _sample(definition: Definition, subject: str, attributes: Mapping[str, float]) -> Sample:
    return Sample(
        definition.domain,
        definition.type,
        definition.name,
        dict(_tags(definition, subject)),
        definition.kind,
        definition.help,
        attributes,
    )


def _tags(definition: Definition, subject: str) -> Iterator[tuple[str, str]]:
    if definition.scope == "log":
        topic, _, partition = subject.rpartition("-")
        yield "topic", topic
        yield "partition", partition
    elif definition.scope == "topic":
        if subject:
            yield "topic", subject
    elif definition.scope == "load":
        yield "dir", subject
    elif definition.scope == "thread":
        directory, _, thread = subject.rpartition(" ")
        yield "dir", directory
        yield "threadNum", thread
    elif definition.scope != "all":
        yield "logDirectory" if definition.scope == "directory" else "device", subject


def _directories(logs: LogManager) -> dict[str, dict[str, float]]:
    """Return the space of each log.dir that can be read, by metric and path."""
    found: dict[str, dict[str, float]] = {}
    for path in logs.paths:
        try:
            space = disk_space(path)
        except OSError:
            continue
        for name, value in (
            ("TotalBytes", space.total_bytes),
            ("FreeBytes", space.free_bytes),
            ("TotalInodes", space.total_inodes),
            ("FreeInodes", space.free_inodes),
        ):
            if value is not None:
                found.setdefault(name, {})[path] = value
    return found


def _devices(logs: LogManager) -> dict[str, dict[str, float]]:
    """Return the counters of each block device below a log.dir, by metric and device."""
    found: dict[str, dict[str, float]] = {}
    for path in logs.paths:
        device = device_counters(device_number(os.fspath(path)))
        if device is not None:
            for name, value in (
                ("Reads", device.reads),
                ("ReadBytes", device.read_bytes),
                ("Writes", device.writes),
                ("WrittenBytes", device.written_bytes),
                ("BusyMs", device.busy_ms),
                ("QueueMs", device.queue_ms),
                ("InFlight", device.in_flight),
            ):
                found.setdefault(name, {})[device.name] = value
    return found
