"""The limits of consumer groups (KIP-848), under Kafka's names. Kafka: GroupCoordinatorConfig."""

from __future__ import annotations

from collections.abc import Mapping

from klog.arguments import INT_MAX
from klog.config.keyed import Keyed, key
from klog.coordinator.groups.own_config import OwnKey, check_bounds, with_own
from klog.values import dataclass

ASSIGNOR_NAMES = ("uniform", "range")
GROUP_KEYS = {  # that a group may have of its own
    "consumer.session.timeout.ms": OwnKey(
        "session_timeout_ms", "a member of this group that sends no heartbeat for this long is removed"
    ),
    "consumer.heartbeat.interval.ms": OwnKey(
        "heartbeat_interval_ms", "how often a member of this group sends a heartbeat"
    ),
}
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig(Keyed):
    """Times in ms.

    Some defaults are not Kafka's: the intervals have no bounds, and a changed group gets its assignment at once, as in
    Kafka 4.1, where 4.3 waits until a second after the last one. refresh_interval_ms: how often heartbeats check for
    changes of topics; Kafka is notified of them, as klog can be with GroupCoordinator.topics_changed(). The first of
    the assignors is the default one. Raises ValueError or TypeError.
    """

    session_timeout_ms: int = key(
        "group.consumer.session.timeout.ms",
        45_000,
        1,
        doc="a member of a consumer group that sends no heartbeat for this long is removed, ms",
    )
    min_session_timeout_ms: int = key(
        "group.consumer.min.session.timeout.ms", 1, 1, doc="lower bound of consumer.session.timeout.ms"
    )
    max_session_timeout_ms: int = key(
        "group.consumer.max.session.timeout.ms", INT_MAX, 1, doc="upper bound of consumer.session.timeout.ms"
    )
    heartbeat_interval_ms: int = key(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        1,
        doc="how often a member of a consumer group sends a heartbeat",
    )
    min_heartbeat_interval_ms: int = key(
        "group.consumer.min.heartbeat.interval.ms", 1, 1, doc="lower bound of consumer.heartbeat.interval.ms"
    )
    max_heartbeat_interval_ms: int = key(
        "group.consumer.max.heartbeat.interval.ms", INT_MAX, 1, doc="upper bound of consumer.heartbeat.interval.ms"
    )
    max_size: int = key("group.consumer.max.size", INT_MAX, 1, doc="largest number of members of a consumer group")
    assignment_interval_ms: int = key(
        "group.consumer.assignment.interval.ms",
        0,
        0,
        doc="shortest time between two assignments of a consumer group, ms",
    )
    regex_refresh_interval_ms: int = key(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        1,
        doc="how often the topics that match a member's regular expression are found again, ms",
    )
    refresh_interval_ms: int = key(None, 1_000, 0)
    assignors: tuple[str, ...] = key(
        "group.consumer.assignors", ASSIGNOR_NAMES, doc="assignors, uniform and range; the first one is the default"
    )
    migration_policy: str = key(
        "group.consumer.migration.policy",
        "bidirectional",
        doc="whether a group with members may change its protocol: upgrade (classic to consumer), downgrade, "
        "bidirectional or disabled",
    )

    def __post_init__(self) -> None:
        Keyed.__post_init__(self)
        object.__setattr__(self, "migration_policy", str(self.migration_policy).lower())
        check_bounds(self, "group.consumer", ("session_timeout_ms", "heartbeat_interval_ms"))
        names = tuple(_CLASSES.get(name, name) for name in self.assignors)
        if not names or not set(names) <= set(ASSIGNOR_NAMES) or len(set(names)) < len(names):
            raise ValueError(f"assignors={self.assignors!r} (group.consumer.assignors): uniform or range, or both")
        object.__setattr__(self, "assignors", names)
        if self.migration_policy not in POLICIES:
            raise ValueError(
                f"migration_policy={self.migration_policy!r} (group.consumer.migration.policy): one of "
                f"{', '.join(POLICIES)} expected"
            )

    def of_group(self, own: Mapping[str, str]) -> ConsumerGroupConfig:
        """With the values that a group has of its own, under the names of GROUP_KEYS. Raises InvalidConfig."""
        return with_own(self, GROUP_KEYS, own)

    @property
    def may_upgrade(self) -> bool:
        """May a classic group become a consumer group while it has members?"""
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """May a consumer group become a classic group when its last member with the new protocol leaves?"""
        return self.migration_policy in ("bidirectional", "downgrade")
