"""Divides the properties of a broker among its components. Kafka: KafkaConfig, which has all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.broker.settings import BrokerSettings
from klog.config import BROKER_KEYS
from klog.config.table import SYNONYMS
from klog.coordinator.groups.config import GroupConfig
from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.share import ShareGroupConfig
from klog.coordinator.transactions.config import TransactionConfig
from klog.errors import InvalidConfig
from klog.network import NetworkConfig
from klog.network.listener import listener_limit
from klog.security import SecurityConfig
from klog.security.config import RULES, TLS

PROPERTY_NAMES = frozenset(
    (
        RULES,
        *TLS,
        *GroupConfig.names(),
        *ConsumerGroupConfig.names(),
        *ShareGroupConfig.names(),
        *TransactionConfig.names(),
    )
)


class Properties:
    """The properties of a broker by Kafka's names, checked and divided.

    settings: those of requests; network: a NetworkConfig; security: a SecurityConfig; engine: those of
    klog.open. others: names that further components take. Raises InvalidConfig for an unknown name or an invalid value.
    """

    def __init__(self, values: Mapping[str, Any] | None, others: frozenset[str] = frozenset()) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"config={values!r}: a mapping of property names expected, not {type(values).__name__}")
        self.all = dict(values or {})
        network_names, known = NetworkConfig.names(), known_properties(others)
        network, engine = {}, {}
        for name, value in self.all.items():
            if not isinstance(name, str):
                raise TypeError(f"config: a property's name is a str, not {name!r}")
            if name in network_names:
                network[name] = value
            elif name in BROKER_KEYS or name in SYNONYMS:
                engine[name] = value
            elif name not in known and not is_of_listener(name):
                raise InvalidConfig(_unknown(name, known))
        self.settings = BrokerSettings.of(self.all)
        self.network = NetworkConfig.of(network)
        self.engine = engine
        self.security = SecurityConfig.of(self.all)


def is_of_listener(name: str) -> bool:
    """Is this a property of security, or a limit of one listener?"""
    return SecurityConfig.knows(name) or listener_limit(name) is not None


def known_properties(others: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names of all properties that a broker takes."""
    return frozenset((*NetworkConfig.names(), *BROKER_KEYS, *SYNONYMS, *BrokerSettings.names(), *others))


def _unknown(name: str, known: frozenset[str]) -> str:
    if name == "listeners":
        return "the listeners are an argument of the broker, not in its config: listeners=['host:port']"
    from klog.config.nearest import nearest

    near = nearest(name, known)
    return f"unknown broker property {name!r}" + (f"; did you mean {near!r}?" if near else "")
