"""What the properties of a broker and the configurations of its groups mean, for `klog config explain` and
docs/configuration.md. The texts stand beside the fields that have the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klog.broker.coordinators import JOIN_DELAY_MS
from klog.broker.settings import BrokerSettings
from klog.config import Explanation, Key
from klog.config import explain as explain_key
from klog.config.explain import explanation_of
from klog.config.keyed import Keyed, type_of
from klog.coordinator.groups.config import GroupConfig
from klog.coordinator.groups.consumer_config import GROUP_KEYS as CONSUMER_KEYS
from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.share.config import GROUP_KEYS as SHARE_KEYS
from klog.coordinator.share.config import ShareGroupConfig
from klog.coordinator.transactions.config import TransactionConfig
from klog.network import NetworkConfig
from klog.security import SecurityConfig
from klog.values import replace

KEYED: Final[tuple[type[Keyed], ...]] = (
    BrokerSettings,
    NetworkConfig,
    GroupConfig,
    ConsumerGroupConfig,
    ShareGroupConfig,
    TransactionConfig,
)


def explain(name: str) -> Explanation:
    """Return what a key of a topic, a directory, a broker or a group means. name: Kafka's property name, or that with
    underscores. Raises what klog.config.explain raises."""
    servers = [explanation_of(key, "server", key.default, dynamic="no") for key in broker_keys()]
    groups = [explanation_of(key, "group", key.default, dynamic="yes") for key in group_keys()]
    return explain_key(name, [*servers, *groups])


def broker_keys() -> Iterator[Key]:
    """The properties of a broker that klog.open does not take, and those of which a broker has another default."""
    for owner in KEYED:
        for key in owner.documented():
            yield replace(key, default=JOIN_DELAY_MS) if key.name == "group.initial.rebalance.delay.ms" else key
    yield from SecurityConfig.documented()


def group_keys() -> Iterator[Key]:
    """The configurations that clients may set for one group."""
    for of_all, keys in ((ConsumerGroupConfig(), CONSUMER_KEYS), (ShareGroupConfig(), SHARE_KEYS)):
        for name, key in keys.items():
            default = getattr(of_all, key.field)
            yield Key(name, type_of(default), default, key.doc)
