"""Rounds of a manager's background work, run now and in this thread."""

from __future__ import annotations

import klog


def retention_round(logs: klog.LogManager) -> None:
    logs._tasks.apply_retention()


def flush_round(logs: klog.LogManager, log: klog.Log) -> None:
    logs._tasks.flush_all([log._core])


def checkpoint_round(logs: klog.LogManager) -> None:
    """Writes the recovery points and the high watermarks."""
    logs._tasks.checkpoint_recovery_points()
    logs._tasks.checkpoint_high_watermarks()
