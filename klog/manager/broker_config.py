"""BrokerConfig: the broker-level configuration of a LogManager, which alter_config changes.

Kafka: DynamicBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from klog.config.model import with_changes

if TYPE_CHECKING:
    from klog.config import ManagerConfig


class BrokerConfig:
    """current: the configuration it was opened with, and the keys that were set since. Under the manager's lock."""

    def __init__(self, opened: ManagerConfig) -> None:
        self._opened = self.current = opened
        self._changes: dict[str, Any] = {}

    def alter(self, config: Mapping[str, Any], check: Callable[[ManagerConfig], object]) -> ManagerConfig:
        """Set keys; None resets one. check: raises InvalidConfig for a configuration that cannot be taken over. Then
        nothing has changed."""
        self.current.altered(config, self.current)
        merged = with_changes(self._changes, config)
        altered = self._opened.altered(merged)
        check(altered)
        self.current = altered
        self._changes = {name: value for name, value in merged.items() if value is not None}
        return altered
