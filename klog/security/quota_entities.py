"""Who a client quota is for, and which of several applies. Kafka: ClientQuotaEntity, ClientQuotaManager.

An entity has a user, a client id or both, or an address (ip). DEFAULT stands for everyone without an own quota.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from klog.arguments import INT_MAX, LONG_MAX
from klog.security.addresses import comparable_host, is_address
from klog.security.refusals import invalid
from klog.values import dataclass

DEFAULT = None
USER, CLIENT_ID, IP = "user", "client-id", "ip"
Kind = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
CONNECTION_RATE = "connection_creation_rate"
# The largest value of each quota, and whether it must be whole.
_CLIENT_KINDS: Mapping[str, tuple[float, bool]] = {
    "producer_byte_rate": (LONG_MAX, True),
    "consumer_byte_rate": (LONG_MAX, True),
    "request_percentage": (math.inf, False),
    "controller_mutation_rate": (math.inf, False),
}
_IP_KINDS: Mapping[str, tuple[float, bool]] = {CONNECTION_RATE: (INT_MAX, True)}
Entity = tuple[tuple[str, str | None], ...]  # (type, name or DEFAULT), sorted by type


@dataclass(frozen=True, slots=True)
class Applied:
    """The quota of a client. shared_by: clients with the same value share one rate."""

    bound: float
    shared_by: tuple[str, str]


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """Return the entity. Raises ItemRefused if Kafka does not allow it."""
    if not parts:
        raise invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
    if IP in parts:
        if len(parts) > 1:
            raise invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        address = parts[IP]
        if address is not DEFAULT:
            if not is_address(address):
                raise invalid(f"{address} is not a valid IP address")
            return ((IP, comparable_host(address)),)
    return tuple(sorted(parts.items()))


def check_value(entity: Entity, key: str, value: float) -> None:
    """Raises ItemRefused for a quota that Kafka does not allow."""
    kinds = _IP_KINDS if entity[0][0] == IP else _CLIENT_KINDS
    if key not in kinds:
        raise invalid(f"Invalid configuration key {key}")
    high, is_whole = kinds[key]
    if not math.isfinite(value) or value <= 0:
        raise invalid(f"Quota {key} must be greater than 0")
    if value > high:
        raise invalid(f"Proposed value for {key} is too large.")
    if is_whole and value % 1 > 1e-6:
        raise invalid(f"{key} cannot be a fractional value.")


def applied(quotas: Mapping[Entity, Mapping[str, float]], kind: str, user: str, client_id: str) -> Applied | None:
    """The quota of this kind for a client: the first that there is of (user, client), (user, default client), (user),
    (default user, client), (default user, default client), (default user), (client), (default client)."""
    for name, client, shared_by in (
        (user, client_id, (user, client_id)),
        (user, DEFAULT, (user, client_id)),
        (user, "", (user, "")),
        (DEFAULT, client_id, (user, client_id)),
        (DEFAULT, DEFAULT, (user, client_id)),
        (DEFAULT, "", (user, "")),
        ("", client_id, ("", client_id)),
        ("", DEFAULT, ("", client_id)),
    ):
        found = quotas.get(_client_entity(name, client))
        if found is not None and kind in found:
            return Applied(found[kind], shared_by)
    return None


def _client_entity(user: str | None, client_id: str | None) -> Entity:
    """ "": without a user, or without a client id."""
    return (*(() if client_id == "" else ((CLIENT_ID, client_id),)), *(() if user == "" else ((USER, user),)))
