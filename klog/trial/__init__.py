"""Measures klog on the user's own disk: the I/O policies of klog.disk, or a log with its records. Takes a directory,
returns a Report.

API: try_disk, try_log, Report, Result; recommend, which makes the advice from results.
"""

from klog.trial.advice import recommend
from klog.trial.disk import try_disk
from klog.trial.records import try_log
from klog.trial.report import Advice, Report, Result

__all__ = ["Advice", "Report", "Result", "recommend", "try_disk", "try_log"]


def __dir__() -> list[str]:
    return sorted(__all__)
