"""The limits of share groups (KIP-932), under Kafka's names. Kafka: ShareGroupConfig, GroupCoordinatorConfig."""

from __future__ import annotations

from collections.abc import Mapping

from klog.arguments import INT_MAX
from klog.config.keyed import Keyed, key
from klog.coordinator.groups.own_config import OwnKey, check_bounds, with_own
from klog.values import dataclass

GROUP_KEYS = {  # that a group may have of its own
    "share.auto.offset.reset": OwnKey(
        "auto_offset_reset", "where this share group begins: earliest, latest or by_duration:<ISO 8601>"
    ),
    "share.delivery.count.limit": OwnKey(
        "delivery_count_limit", "largest number of deliveries of a record to this share group"
    ),
    "share.heartbeat.interval.ms": OwnKey(
        "heartbeat_interval_ms", "how often a member of this share group sends a heartbeat"
    ),
    "share.isolation.level": OwnKey("isolation_level", "whether this share group gets records of aborted transactions"),
    "share.partition.max.record.locks": OwnKey(
        "partition_max_record_locks", "largest number of acquired records of a partition that are not acknowledged"
    ),
    "share.record.lock.duration.ms": OwnKey(
        "record_lock_duration_ms", "how long a member of this share group may take to acknowledge a record"
    ),
    "share.renew.acknowledge.enable": OwnKey(
        "renew_acknowledge_enable", "whether members may ask for more time for a record"
    ),
    "share.session.timeout.ms": OwnKey(
        "session_timeout_ms", "a member of this share group that sends no heartbeat for this long is removed"
    ),
}
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_BOUNDED = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "record_lock_duration_ms",
    "delivery_count_limit",
    "partition_max_record_locks",
)
_DURATION = (
    r"by_duration:P(?=.)(?:(\d{1,6})D)?(?:T(?=.)(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})(?:\.(\d{1,3})\d*)?S)?)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig(Keyed):
    """Times in ms.

    Some defaults are not Kafka's: times and numbers have no bounds, and a changed group gets its assignment at once.
    refresh_interval_ms: how often heartbeats check for changes of topics. Raises ValueError or TypeError.
    """

    session_timeout_ms: int = key(
        "group.share.session.timeout.ms",
        45_000,
        1,
        doc="a member of a share group that sends no heartbeat for this long is removed, ms",
    )
    min_session_timeout_ms: int = key(
        "group.share.min.session.timeout.ms", 1, 1, doc="lower bound of share.session.timeout.ms"
    )
    max_session_timeout_ms: int = key(
        "group.share.max.session.timeout.ms", INT_MAX, 1, doc="upper bound of share.session.timeout.ms"
    )
    heartbeat_interval_ms: int = key(
        "group.share.heartbeat.interval.ms", 5_000, 1, doc="how often a member of a share group sends a heartbeat"
    )
    min_heartbeat_interval_ms: int = key(
        "group.share.min.heartbeat.interval.ms", 1, 1, doc="lower bound of share.heartbeat.interval.ms"
    )
    max_heartbeat_interval_ms: int = key(
        "group.share.max.heartbeat.interval.ms", INT_MAX, 1, doc="upper bound of share.heartbeat.interval.ms"
    )
    record_lock_duration_ms: int = key(
        "group.share.record.lock.duration.ms",
        30_000,
        1,
        doc="how long a member of a share group may take to acknowledge a record, ms",
    )
    min_record_lock_duration_ms: int = key(
        "group.share.min.record.lock.duration.ms", 1, 1, doc="lower bound of share.record.lock.duration.ms"
    )
    max_record_lock_duration_ms: int = key(
        "group.share.max.record.lock.duration.ms", INT_MAX, 1, doc="upper bound of share.record.lock.duration.ms"
    )
    delivery_count_limit: int = key(
        "group.share.delivery.count.limit", 5, 1, doc="largest number of deliveries of a record to a share group"
    )
    min_delivery_count_limit: int = key(
        "group.share.min.delivery.count.limit", 1, 1, doc="lower bound of share.delivery.count.limit"
    )
    max_delivery_count_limit: int = key(
        "group.share.max.delivery.count.limit", 32_767, 1, doc="upper bound of share.delivery.count.limit"
    )
    partition_max_record_locks: int = key(
        "group.share.partition.max.record.locks",
        2_000,
        1,
        doc="largest number of acquired records of a partition that are not acknowledged",
    )
    min_partition_max_record_locks: int = key(
        "group.share.min.partition.max.record.locks", 1, 1, doc="lower bound of share.partition.max.record.locks"
    )
    max_partition_max_record_locks: int = key(
        "group.share.max.partition.max.record.locks", 10_000, 1, doc="upper bound of share.partition.max.record.locks"
    )
    max_size: int = key("group.share.max.size", 200, 1, doc="largest number of members of a share group")
    max_share_sessions: int = key(
        "group.share.max.share.sessions", 2_000, 1, doc="largest number of share sessions of a broker"
    )
    snapshot_update_records: int = key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        0,
        doc="updates of a share partition's state between two snapshots of it",
    )
    refresh_interval_ms: int = key(None, 1_000, 0)
    auto_offset_reset: str = key(None, "latest")
    isolation_level: str = key(None, "read_uncommitted")
    renew_acknowledge_enable: bool = key(None, True)

    def __post_init__(self) -> None:
        Keyed.__post_init__(self)
        check_bounds(self, "group.share", _BOUNDED)
        for name in ("auto_offset_reset", "isolation_level"):
            object.__setattr__(self, name, str(getattr(self, name)).strip())
        if self.isolation_level not in ISOLATION_LEVELS:
            raise ValueError(
                f"isolation_level={self.isolation_level!r} (share.isolation.level): one of "
                f"{', '.join(ISOLATION_LEVELS)} expected"
            )
        if self.auto_offset_reset not in ("earliest", "latest") and self.reset_duration_ms is None:
            raise ValueError(
                f"auto_offset_reset={self.auto_offset_reset!r} (share.auto.offset.reset): earliest, latest or "
                "by_duration:PnDTnHnMn.nS expected"
            )

    @property
    def reset_duration_ms(self) -> int | None:
        """The duration of auto_offset_reset; None for earliest and latest."""
        import re

        found = re.fullmatch(_DURATION, self.auto_offset_reset, re.IGNORECASE)
        if found is None:
            return None
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
        return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + int((found[5] or "0").ljust(3, "0"))

    def of_group(self, own: Mapping[str, str]) -> ShareGroupConfig:
        """With the values that a group has of its own, under the names of GROUP_KEYS. Raises InvalidConfig."""
        return with_own(self, GROUP_KEYS, own)
