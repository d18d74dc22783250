"""Measures the I/O policies of klog.disk on the user's own disk. Takes a directory, returns a Report.

API: try_disk, Report, Result; recommend, which makes the advice from results.
"""

from klog.trial.advice import recommend
from klog.trial.disk import try_disk
from klog.trial.report import Advice, Report, Result

__all__ = ["Advice", "Report", "Result", "recommend", "try_disk"]
