"""The limits of groups, under Kafka's names. Kafka: GroupCoordinatorConfig."""

from __future__ import annotations

from klog.arguments import INT_MAX
from klog.config.keyed import Keyed, key
from klog.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(Keyed):
    """Times in ms unless the name says otherwise.

    One default is not Kafka's: the first rebalance of a group is not delayed, where Kafka waits 3 seconds for more
    members. A group whose members start together then rebalances once more. Raises ValueError or TypeError.
    """

    initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        0,
        0,
        doc="how long the first rebalance of a classic group waits for more members, ms; Kafka: 3000",
    )
    min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms", 6000, 0, doc="shortest session timeout of a member of a classic group, ms"
    )
    max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms", 1_800_000, 0, doc="longest session timeout of a member of a classic group, ms"
    )
    max_size: int = key("group.max.size", INT_MAX, 1, doc="largest number of members of a classic group")
    offset_metadata_max_bytes: int = key(
        "offset.metadata.max.bytes", 4096, 0, doc="largest metadata of a committed offset, bytes"
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes", 10_080, 1, doc="how long the offsets of a group without members are kept"
    )
    offsets_retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms", 600_000, 1, doc="period of the check for expired offsets, ms"
    )

    def __post_init__(self) -> None:
        Keyed.__post_init__(self)
        if self.max_session_timeout_ms < self.min_session_timeout_ms:
            raise ValueError(
                f"max_session_timeout_ms={self.max_session_timeout_ms} (group.max.session.timeout.ms) is below "
                f"min_session_timeout_ms={self.min_session_timeout_ms}"
            )
