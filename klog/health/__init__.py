"""Checks whether the engine is healthy. Takes facts about a machine and the logs on it, returns findings with the next
step.

API: examine(machine, engine) → HealthReport; read_machine() makes the Machine; a manager makes Engine and LogFacts.
CHECKS has the thresholds, docs/metrics.md shows them.
"""

from klog.health.engine import Engine, LogFacts
from klog.health.examination import examine
from klog.health.machine import Directory, Machine, read_machine
from klog.health.report import Finding, HealthReport, Severity
from klog.health.thresholds import CHECKS, Check

__all__ = [
    "CHECKS",
    "Check",
    "Directory",
    "Engine",
    "Finding",
    "HealthReport",
    "LogFacts",
    "Machine",
    "Severity",
    "examine",
    "read_machine",
]


def __dir__() -> list[str]:
    return sorted(__all__)
