"""Consuming until something is there, within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.clients.adapters import Client, Consumer, Message
from tests.support.patience import PATIENCE, until

__all__ = ["collect", "eventually", "everything", "poll_together", "settle"]

QUIET_SECONDS = 0.1  # what is too many is in the same fetch, or in the next
_POLL_SECONDS = 0.1


def collect(consumer: Consumer, count: int) -> list[Message]:
    """Poll until `count` records are there; fails if more arrive with them."""
    deadline = time.monotonic() + PATIENCE
    found: list[Message] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} records of {count}: {found[-3:]}"
        found += consumer.poll(_POLL_SECONDS)
    assert len(found) == count, found
    return found


def everything(client: Client, topic: str, count: int, isolation: str = "read_uncommitted") -> list[Message]:
    """The records of partition 0 that a new consumer can read: waits for `count`, then a moment for what is too many."""
    consumer = client.consumer(isolation=isolation)
    try:
        consumer.assign({(topic, 0): 0})
        return collect(consumer, count) + consumer.poll(QUIET_SECONDS)
    finally:
        consumer.close()


def poll_together(consumers: Sequence[Consumer]) -> list[Message]:
    """Poll all members of a group at the same time, as programs do that run side by side.

    kafka-python drops a JoinGroup that is answered while its member is not polled, and joins again. Polled in turn, the
    leader of a group may do so without end.
    """
    with ThreadPoolExecutor(len(consumers)) as threads:
        found = threads.map(lambda consumer: consumer.poll(_POLL_SECONDS), consumers)
        return [message for messages in found for message in messages]


def settle(consumers: Sequence[Consumer], balanced: Callable[[], bool]) -> list[Message]:
    """Poll all members of a group until their assignments satisfy `balanced`; returns the records seen meanwhile."""
    deadline = time.monotonic() + PATIENCE
    seen: list[Message] = []
    while not balanced():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        seen += poll_together(consumers)
    return seen


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what a broker brings about; asking it takes a request."""
    until(holds, 0.05)
