"""Let go of a manager as the death of its process would: nothing is flushed, nothing called clean, locks are free."""

from __future__ import annotations

import klog


def abandon(manager: klog.LogManager) -> None:
    manager._abandon()
