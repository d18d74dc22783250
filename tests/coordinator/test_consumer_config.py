"""The configuration of consumer groups, under Kafka's names."""

from __future__ import annotations

import pytest

from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.share import ShareGroupConfig
from klog.errors import InvalidConfig


def test_intervals_outside_their_limits_are_refused() -> None:
    found = ConsumerGroupConfig.of(
        {"group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": 100}
    )
    assert (found.heartbeat_interval_ms, found.min_heartbeat_interval_ms) == (300, 100)
    for values in (
        {"group.consumer.heartbeat.interval.ms": 99, "group.consumer.min.heartbeat.interval.ms": 100},
        {"group.consumer.max.session.timeout.ms": 44_999},
    ):
        with pytest.raises(InvalidConfig, match="interval|session"):
            ConsumerGroupConfig.of(values)


@pytest.mark.parametrize(
    ("kind", "prefix"), [(ConsumerGroupConfig, "group.consumer"), (ShareGroupConfig, "group.share")]
)
def test_a_session_that_is_no_longer_than_a_heartbeat_is_refused(
    kind: type[ConsumerGroupConfig | ShareGroupConfig], prefix: str
) -> None:
    """Every member would be removed before its second heartbeat."""
    kind.of({f"{prefix}.session.timeout.ms": 5001})
    with pytest.raises(InvalidConfig, match=rf"{prefix}.session.timeout.ms.*{prefix}.heartbeat.interval.ms"):
        kind.of({f"{prefix}.session.timeout.ms": 5000})
