"""What a write must know of its topics: looked up once, on the driver; tasks get it pickled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import klog
from klog import LogConfig
from klog.disk import is_directory
from klog.errors import AlreadyLocked, InvalidTopic, PolicyViolation, UnknownTopicOrPartition
from klog.manager.commits import TopicPlan
from klog.manager.topics import check_topic_name
from klog.spark.sink_options import SinkOptions
from klog.values import dataclass, field


@dataclass(frozen=True)
class Target:
    """One topic: how many partitions, and how its records are encoded. plan: what the commit compares."""

    plan: TopicPlan
    config: LogConfig


@dataclass(frozen=True)
class SinkPlan:
    """The topics of a log.dir as they were when the job was planned. split: why a topic that is not there as a whole
    cannot be written."""

    options: SinkOptions
    present: Mapping[str, Target] = field(default_factory=dict)
    split: Mapping[str, str] = field(default_factory=dict)

    def target(self, topic: str) -> Target:
        """The target of a topic, also one that the job will create. Raises UnknownTopicOrPartition, InvalidTopic
        also for one whose partitions are in several log directories."""
        if topic in self.split:
            raise InvalidTopic(self.split[topic])
        found = self.present.get(topic)
        if found is not None:
            return found
        if not self.options.create_topics:
            known = ", ".join(sorted(self.present)) or "none"
            raise UnknownTopicOrPartition(
                f"no topic {topic!r} in {self.options.path}, and createTopics=false; topics there: {known}"
            )
        check_topic_name(topic)
        given = self.options.config_of_new_topics
        return Target(TopicPlan(self.options.partitions or 1, None, given, is_new=True), LogConfig(given))


def plan_sink(options: SinkOptions, *, overwrite: bool) -> SinkPlan:
    """Examine the topics. Creates the log.dir if it does not exist.

    Raises ValueError for a topic that is not as the options say, PolicyViolation, and the errors of klog.open.
    """
    if not is_directory(options.path):
        with suppress(AlreadyLocked):  # another job has created it meanwhile
            klog.open(options.path, create=True).close()
    present, split = {}, {}
    with klog.open(options.path, read_only=True) as logs:
        for topic, partitions in logs.topics().items():
            if options.topic not in (None, topic):
                continue
            entry = logs._catalog.entry(topic)
            if partitions != list(range(len(partitions) if entry is None else entry.partitions)):
                split[topic] = (
                    f"topic {topic!r} has only the partitions {partitions} in {options.path}, so keys cannot be "
                    "partitioned; move all partitions of it to one log directory"
                )
            else:
                with suppress(UnknownTopicOrPartition):  # deleted meanwhile
                    topic_id = logs.topic_id(topic)  # opens no log, which may be damaged
                    present[topic] = Target(TopicPlan(len(partitions), topic_id), logs.topic_config(topic))
    plan = SinkPlan(options, present, split)
    if options.topic is not None:
        target = plan.target(options.topic)
        _check(options.topic, target, options, overwrite=overwrite)
    return plan


def _check(topic: str, target: Target, options: SinkOptions, *, overwrite: bool) -> None:
    if target.plan.is_new:
        return
    if options.partitions not in (None, target.plan.partitions):
        raise ValueError(
            f"option 'partitions' = {options.partitions}, but topic {topic!r} has {target.plan.partitions}: leave it "
            "out"
        )
    wanted = LogConfig(options.config)
    for name in options.config:
        if name != "compression.type" and wanted[name] != target.config[name]:
            raise ValueError(
                f"option '{name}' = {options.config[name]!r}, but topic {topic!r} has {target.config[name]!r}; leave "
                "it out, or change the topic by LogManager.alter_topic"
            )
    if overwrite and "delete" not in target.config.cleanup_policy:
        raise PolicyViolation(
            f"topic {topic!r} has cleanup.policy=compact, without delete: its records cannot be overwritten; append"
        )
