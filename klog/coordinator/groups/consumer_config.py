"""The limits of consumer groups (KIP-848), under Kafka's names. Kafka: GroupCoordinatorConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from klog import arguments
from klog.coordinator.groups.config import INT_MAX
from klog.errors import InvalidConfig
from klog.values import dataclass, field, fields

ASSIGNOR_NAMES = ("uniform", "range")
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def _key(name: str | None, default: int, low: int) -> Any:
    return field(default=default, metadata={"name": name, "low": low})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """Times in ms.

    One default is not Kafka's: a changed group gets its assignment at once, as in Kafka 4.1, where 4.3 waits until a
    second after the last one. refresh_interval_ms: heartbeats look so often for changes of topics; Kafka is notified of
    them, as klog can be with GroupCoordinator.topics_changed(). The first of the assignors is the default one. Raises
    ValueError or TypeError.
    """

    session_timeout_ms: int = _key("group.consumer.session.timeout.ms", 45_000, 1)
    heartbeat_interval_ms: int = _key("group.consumer.heartbeat.interval.ms", 5_000, 1)
    max_size: int = _key("group.consumer.max.size", INT_MAX, 1)
    assignment_interval_ms: int = _key("group.consumer.assignment.interval.ms", 0, 0)
    regex_refresh_interval_ms: int = _key("group.consumer.regex.refresh.interval.ms", 600_000, 1)
    refresh_interval_ms: int = _key(None, 1_000, 0)
    assignors: tuple[str, ...] = field(default=ASSIGNOR_NAMES, metadata={"name": "group.consumer.assignors"})
    migration_policy: str = field(default="bidirectional", metadata={"name": "group.consumer.migration.policy"})

    def __post_init__(self) -> None:
        for each in fields(self):
            if "low" in each.metadata:
                hint = f" ({each.metadata['name']})" if each.metadata["name"] else ""
                value = arguments.whole(each.name, getattr(self, each.name), each.metadata["low"], INT_MAX, hint=hint)
                object.__setattr__(self, each.name, value)
        names = tuple(_CLASSES.get(name, name) for name in self.assignors)
        if not names or not set(names) <= set(ASSIGNOR_NAMES) or len(set(names)) < len(names):
            raise ValueError(f"assignors={self.assignors!r} (group.consumer.assignors): uniform or range, or both")
        object.__setattr__(self, "assignors", names)
        if self.migration_policy not in POLICIES:
            raise ValueError(
                f"migration_policy={self.migration_policy!r} (group.consumer.migration.policy): one of "
                f"{', '.join(POLICIES)} expected"
            )

    @property
    def may_upgrade(self) -> bool:
        """May a classic group become a consumer group while it has members?"""
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """May a consumer group become a classic group when its last member with the new protocol leaves?"""
        return self.migration_policy in ("bidirectional", "downgrade")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From properties by Kafka's names, as in a server.properties; other names are left out. Raises
        InvalidConfig."""
        found: dict[str, Any] = {}
        for each in fields(cls):
            name = each.metadata["name"]
            if name not in values:
                continue
            value = values[name]
            if each.name == "assignors":
                found[each.name] = tuple(part.strip() for part in str(value).split(",") if part.strip())
            elif each.name == "migration_policy":
                found[each.name] = str(value).lower()
            else:
                try:
                    found[each.name] = int(value)
                except (TypeError, ValueError):
                    raise InvalidConfig(f"{name}={value!r}: a whole number expected") from None
        try:
            return cls(**found)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
