"""The helpers that poll members of a group."""

from __future__ import annotations

import threading
from typing import cast

from tests.clients.adapters import Consumer, Message
from tests.clients.reading import poll_together
from tests.support.patience import PATIENCE


class _Member:
    """poll() returns only if the other member is polled at the same time."""

    def __init__(self, both: threading.Barrier, name: str) -> None:
        self._both = both
        self._message = Message(name, 0, 0, None, b"", (), 0)

    def poll(self, seconds: float) -> list[Message]:
        self._both.wait(PATIENCE)
        return [self._message]


def test_members_are_polled_at_the_same_time() -> None:
    both = threading.Barrier(2)
    members = [_Member(both, "a"), _Member(both, "b")]
    assert [each.topic for each in poll_together(cast("list[Consumer]", members))] == ["a", "b"]
