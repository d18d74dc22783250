"""The limits of groups, under Kafka's names. Kafka: GroupCoordinatorConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from klog import arguments
from klog.errors import InvalidConfig
from klog.values import dataclass, field, fields

INT_MAX = 2**31 - 1


def _key(name: str, default: int, low: int) -> Any:
    return field(default=default, metadata={"name": name, "low": low})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Times in ms unless the name says otherwise.

    One default is not Kafka's: the first rebalance of a group is not delayed, where Kafka waits 3 seconds for more
    members. A group whose members start together then rebalances once more. Raises ValueError or TypeError.
    """

    initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", 0, 0)
    min_session_timeout_ms: int = _key("group.min.session.timeout.ms", 6000, 0)
    max_session_timeout_ms: int = _key("group.max.session.timeout.ms", 1_800_000, 0)
    max_size: int = _key("group.max.size", INT_MAX, 1)
    offset_metadata_max_bytes: int = _key("offset.metadata.max.bytes", 4096, 0)
    offsets_retention_minutes: int = _key("offsets.retention.minutes", 10_080, 1)
    offsets_retention_check_interval_ms: int = _key("offsets.retention.check.interval.ms", 600_000, 1)

    def __post_init__(self) -> None:
        for each in fields(self):
            low, hint = each.metadata["low"], f" ({each.metadata['name']})"
            value = arguments.whole(each.name, getattr(self, each.name), low, INT_MAX, hint=hint)
            object.__setattr__(self, each.name, value)
        if self.max_session_timeout_ms < self.min_session_timeout_ms:
            raise ValueError(
                f"max_session_timeout_ms={self.max_session_timeout_ms} (group.max.session.timeout.ms) is below "
                f"min_session_timeout_ms={self.min_session_timeout_ms}"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From properties by Kafka's names, as in a server.properties; other names are left out. Raises
        InvalidConfig."""
        found: dict[str, int] = {}
        for each in fields(cls):
            name = each.metadata["name"]
            if name in values:
                try:
                    found[each.name] = int(values[name])
                except (TypeError, ValueError):
                    raise InvalidConfig(f"{name}={values[name]!r}: a whole number expected") from None
        try:
            return cls(**found)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
