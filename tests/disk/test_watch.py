"""Notifier and Waiter."""

from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path

import pytest

from klog.disk import Notifier, Waiter, watch
from tests.support.child import in_child


def test_a_waiter_that_closes_during_a_notification_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler, or the end of an object, may close it in the same thread."""
    notifier = Notifier()
    waiters = [Waiter([notifier], []) for _ in range(3)]
    write = os.eventfd_write

    def write_and_close(fd: int, value: int) -> None:
        write(fd, value)
        waiters[1].close()

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd_write", write_and_close)
        notifier.notify()
    assert [os.eventfd_read(waiter._fds[0]) for waiter in (waiters[0], waiters[2])] == [1, 1]
    for waiter in waiters:
        waiter.close()


@pytest.mark.parametrize("how", ["wait", "wait_async"])
def test_the_first_wait_of_a_forked_child_ends_at_once(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor of the child reports a change that came between its last look and this wait."""
    with Waiter([], [str(tmp_path)]) as waiter:

        def first_wait() -> str:
            (tmp_path / "changed").write_bytes(b"")
            monkeypatch.setattr(select, "poll", None)
            monkeypatch.setattr(watch, "wait_ready", None)
            if how == "wait":
                waiter.wait()
            else:
                asyncio.run(waiter.wait_async())
            return "ended"

        assert in_child(first_wait) == "ended"
