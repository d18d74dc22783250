"""Abandon a manager or a log as if its process had died: nothing is flushed, no clean-shutdown file is written, and
locks are released."""

from __future__ import annotations

import klog
from klog.log import closing


def abandon(opened: klog.LogManager | klog.Log) -> None:
    if isinstance(opened, klog.Log):
        closing.abandon(opened._core)
    else:
        opened.abandon()
