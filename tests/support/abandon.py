"""Abandon a manager or a log as if its process had died: nothing is flushed, no clean-shutdown file, locks are
released."""

from __future__ import annotations

import klog


def abandon(opened: klog.LogManager | klog.Log) -> None:
    opened._abandon()
