"""Rounds of a manager's background work, run now and in this thread."""

from __future__ import annotations

import klog
from klog.manager import background


def retention_round(logs: klog.LogManager) -> None:
    background.apply_retention(logs)


def flush_round(logs: klog.LogManager, log: klog.Log) -> None:
    background.flush_all(logs, [log])


def checkpoint_round(logs: klog.LogManager) -> None:
    """Writes the recovery points and the high watermarks."""
    background.checkpoint_recovery_points(logs)
    background.checkpoint_high_watermarks(logs)
