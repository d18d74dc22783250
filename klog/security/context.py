"""What a handler of a request sees of its client and of the broker's topics. Protocols: klog.broker implements them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import uuid

    from klog.log import Log
    from klog.protocol import ApiKey, Message


class Context(Protocol):
    """One request: who sent it, and how to respond. Any thread."""

    api: ApiKey
    version: int
    client_id: str
    client_host: str
    principal: str
    listener: str
    connection: object | None

    def respond(self, response: Message, *, throttle_ms: int = 0) -> None:
        """Send the response. Once; handlers that return a response do not call it."""

    def authorized(self, operation: str, resource_type: str, name: str) -> bool:
        """May the principal do this? operation: "READ"; resource_type: "TOPIC", "GROUP", "CLUSTER" or
        "TRANSACTIONAL_ID". True without an authorizer."""


class Topics(Protocol):
    """The topics of a broker. Any thread."""

    def log(self, topic: str, partition: int) -> Log | None:
        """The log of a partition; None for an unknown one."""

    def partitions(self, topic: str) -> int | None:
        """The number of partitions; None for an unknown topic."""

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic; None for an unknown one."""

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with an id; None for an unknown one."""

    def names(self) -> list[str]:
        """All topics, sorted."""

    def ensure_internal(self, topic: str) -> None:
        """Create __consumer_offsets, __transaction_state or __share_group_state unless it exists."""
