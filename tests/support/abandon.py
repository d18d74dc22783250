"""Let go of a manager as the death of its process would: nothing is flushed, nothing called clean, locks are free."""

from __future__ import annotations

import klog


def abandon(manager: klog.LogManager) -> None:
    manager._closed = True
    for log in manager._logs.values():
        log._owner = None
        if not log.closed:
            log._abandon()
    if manager._directory_lock is not None:
        manager._directory_lock.release()
