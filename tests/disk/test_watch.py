"""Notifier and Waiter."""

from __future__ import annotations

import os

import pytest

from klog.disk import Notifier, Waiter


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
