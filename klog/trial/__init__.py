"""trial: the policies of the disk room side by side on the user's own disk. Takes a directory, gives a Report.

Its door: try_disk, Report, Result; recommend, which is pure.
"""

from klog.trial.advice import Advice, recommend
from klog.trial.disk import try_disk
from klog.trial.report import Report, Result

__all__ = ["Advice", "Report", "Result", "recommend", "try_disk"]
