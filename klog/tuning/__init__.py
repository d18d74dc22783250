"""Recommends settings for a log.dir from what it holds and from a measurement of its disk. Takes a directory, returns a
TuningReport.

API: tune, apply; TuningReport, Recommendation, Workload; PROFILES.
"""

from klog.tuning.profiles import PROFILES, Profile
from klog.tuning.recommend import Recommendation
from klog.tuning.tune import TuningReport, apply, tune
from klog.tuning.workload import Workload

__all__ = ["PROFILES", "Profile", "Recommendation", "TuningReport", "Workload", "apply", "tune"]


def __dir__() -> list[str]:
    return sorted(__all__)
