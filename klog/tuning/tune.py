"""tune(): examines the topics of a log.dir, measures its disk, and recommends settings. apply() sets what is
recommended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from klog.arguments import chosen, flag, function, instance, path
from klog.clock import Clock, SystemClock
from klog.disk import check_directory
from klog.errors import KlogError
from klog.inspect.files import check_log_dir
from klog.internal_topics import TOPICS
from klog.log.options import check_tools
from klog.manager import LogManager, open_directory
from klog.progress import Progress
from klog.trial import Report, try_disk
from klog.tuning.profiles import PROFILES, matching
from klog.tuning.recommend import DiskFigures, Recommendation, for_broker, for_topic
from klog.tuning.workload import Workload, workload_of
from klog.values import asdict, dataclass

_TRIAL_BYTES, _TRIAL_SECONDS = 64 << 20, 5.0
_SETTING = re.compile(r"(klog\.io\.[a-z.]+)=(\w+)")


@dataclass(frozen=True, slots=True)
class TuningReport:
    """profiles: {topic: name of its profile}. disk: the measurement, None if it was left out. recommendations: those
    of topics first, then broker-level ones. notes: other advice, and topics that could not be examined."""

    directory: str
    workloads: Sequence[Workload]
    profiles: Mapping[str, str]
    disk: DiskFigures | None
    recommendations: Sequence[Recommendation]
    notes: Sequence[str]

    @property
    def server_properties(self) -> list[str]:
        """The broker-level recommendations as lines of a properties file."""
        return [f"{each.key}={each.recommended}" for each in self.recommendations if each.topic is None]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {**asdict(self), "server_properties": self.server_properties}


def tune(
    directory: str | os.PathLike[str],
    *,
    profile: str | None = None,
    disk: bool = True,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> TuningReport:
    """Recommend settings for the topics of a log.dir. Nothing is changed. Internal topics of Kafka are left out.

    profile: one of PROFILES for every topic; None: the one that suits each topic's workload. disk: measure the disk, in
    a new directory inside `directory`, which is removed afterwards: about 64 MiB in 5 seconds.

    Raises ValueError, OSError: a disk error, or too little free space to measure.
    """
    where = check_directory(path("directory", directory))
    if profile is not None:
        chosen("profile", profile, tuple(PROFILES), ", or None")
    function("progress", progress)
    check_tools(clock, None)
    check_log_dir(where)
    report: Report | None = None
    if flag("disk", disk):
        report = try_disk(
            where, size=_TRIAL_BYTES, seconds=_TRIAL_SECONDS, clock=clock or SystemClock(), progress=progress
        )
    figures = None if report is None else figures_of(report)
    notes: list[str] = []
    workloads: list[Workload] = []
    profiles: dict[str, str] = {}
    found: list[Recommendation] = []
    compacted: list[str] = []
    with open_directory(where, read_only=True, clock=clock) as logs:
        topics = logs.topics()
        if internal := [topic for topic in topics if topic in TOPICS]:
            notes.append(f"internal topics of Kafka are left out: {', '.join(internal)}")
        for topic, partitions in topics.items():
            if topic in TOPICS:
                continue
            try:
                config = logs.topic_config(topic) if logs._catalog.entry(topic) is not None else None
                workload = workload_of(topic, [logs.log(topic, partition) for partition in partitions])
            except (KlogError, OSError) as error:
                notes.append(f"topic {topic} is left out: {error}")
                continue
            if workload is None:
                notes.append(f"topic {topic} is left out: it has no records")
                continue
            fitting, why = (PROFILES[profile], "the choice of the caller") if profile else matching(workload)
            workloads.append(workload)
            profiles[topic] = fitting.name
            compacted += [topic] if config is not None and config.compacts else []
            found += for_topic(workload, fitting, why, config, figures)
        found += for_broker(workloads, compacted, logs.config, os.cpu_count() or 1)
    if report is not None:
        notes += [f"{advice.setting}: {advice.reason}" for advice in report.advice if not _is_setting(advice.setting)]
        notes += report.notes
    return TuningReport(where, workloads, profiles, figures, found, notes)


def figures_of(report: Report) -> DiskFigures:
    """Return the figures of a measurement that recommendations need."""
    durable = next(one for one in report.results if one.contest.startswith("durable append"))
    appends = [one.value for one in report.results if one.contest.startswith("append ") and one.way == "buffered"]
    settings = {
        match[1]: (match[2], advice.reason)
        for advice in report.advice
        if (match := _SETTING.fullmatch(advice.setting)) is not None
    }
    return DiskFigures(durable.figures["p50 ms"], max(appends) * 1e6, settings)


def _is_setting(text: str) -> bool:
    return _SETTING.fullmatch(text) is not None


def apply(logs: LogManager, report: TuningReport) -> dict[str, dict[str, str]]:
    """Set the recommendations of topics, durably and at once. Returns {topic: its changed keys}. Broker-level ones are
    left to the operator: see server_properties.

    Raises UnknownTopicOrPartition, InvalidConfig, ReadOnly; the topics before the failed one have been changed.
    """
    instance("logs", logs, LogManager, "a klog.LogManager")
    instance("report", report, TuningReport, "what tune() returned")
    changes: dict[str, dict[str, str]] = {}
    for each in report.recommendations:
        if each.topic is not None:
            changes.setdefault(each.topic, {})[each.key] = each.recommended
    for topic, config in changes.items():
        logs.alter_topic(topic, config)
    return changes
