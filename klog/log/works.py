"""The methods of Log that packages above this one implement. A Log has a method for each; klog/__init__ binds what they
call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog._start import log_works
from klog.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from klog.config import LogConfig
    from klog.log.options import Policy
    from klog.log.read.page_cache import LogPageCache
    from klog.log.retain.cleaning_stats import CompactionStats, PurgeStats
    from klog.log.state._log_core import LogCore
    from klog.progress import Progress
    from klog.report import Report


@dataclass(frozen=True, slots=True)
class Works:
    """compact and purge_key: those of the cleaner. verify and plot: those of inspect. reopen: a log by its path, for a
    reader that another process has sent."""

    compact: Callable[..., CompactionStats]
    purge_key: Callable[..., PurgeStats]
    verify: Callable[[LogCore, Progress | None], Report]
    plot: Callable[[LogCore, LogPageCache | None, Axes | None], Axes]
    reopen: Callable[[str, LogConfig, Policy], LogCore]


def bound() -> Works:
    """The functions that klog/__init__ has bound."""
    return Works(**log_works)
