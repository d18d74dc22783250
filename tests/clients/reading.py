"""Consume until expected records or assignments are there, with bounded waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.clients.adapters import Client, Consumer, Message
from tests.support.patience import PATIENCE, until

__all__ = ["collect", "eventually", "everything", "poll_together", "settle"]

QUIET_SECONDS = 0.1  # a surplus record is in the same fetch or in the next one
_POLL_SECONDS = 0.1


def collect(consumer: Consumer, count: int) -> list[Message]:
    """Poll until `count` records have arrived, and return them. Fails if the last poll returns more."""
    deadline = time.monotonic() + PATIENCE
    found: list[Message] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} records of {count}: {found[-3:]}"
        found += consumer.poll(_POLL_SECONDS)
    assert len(found) == count, found
    return found


def everything(client: Client, topic: str, count: int, isolation: str = "read_uncommitted") -> list[Message]:
    """The records of partition 0 that a new consumer can read. Waits for `count` records, then QUIET_SECONDS for surplus
    ones."""
    consumer = client.consumer(isolation=isolation)
    try:
        consumer.assign({(topic, 0): 0})
        return collect(consumer, count) + consumer.poll(QUIET_SECONDS)
    finally:
        consumer.close()


def poll_together(consumers: Sequence[Consumer]) -> list[Message]:
    """Poll all members of a group at the same time, as if each were a program of its own. Returns their records.

    kafka-python drops the response to a JoinGroup that arrives while its member is not polled, and joins again. If the
    members are polled one after the other, the leader of a group may do so without end.
    """
    with ThreadPoolExecutor(len(consumers)) as threads:
        found = threads.map(lambda consumer: consumer.poll(_POLL_SECONDS), consumers)
        return [message for messages in found for message in messages]


def settle(consumers: Sequence[Consumer], balanced: Callable[[], bool]) -> list[Message]:
    """Poll all members of a group until their assignments satisfy `balanced`; returns the records that arrive in the meantime."""
    deadline = time.monotonic() + PATIENCE
    seen: list[Message] = []
    while not balanced():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        seen += poll_together(consumers)
    return seen


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until `holds()` is true. It may send a request, so it is called every 50 ms only."""
    until(holds, 0.05)
