"""Let go of a manager, or of a log by itself, as the death of its process would: nothing is flushed, nothing called clean,
locks are free."""

from __future__ import annotations

import klog


def abandon(opened: klog.LogManager | klog.Log) -> None:
    opened._abandon()
