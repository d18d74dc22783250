"""The methods of Log that packages above this one implement. A Log has a method for each; klog/__init__ binds what they
call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog._start import log_works
from klog.values import dataclass

if TYPE_CHECKING:
    from typing import Protocol

    from matplotlib.axes import Axes

    from klog.config import LogConfig
    from klog.log.read.page_cache import LogPageCache
    from klog.log.retain.cleaning_stats import CompactionStats, PurgeStats
    from klog.log.state._log_core import LogCore
    from klog.progress import Progress
    from klog.report import Report

    class _Compact(Protocol):
        def __call__(
            self, log: LogCore, *, roll: bool, rounds: int | None, dry_run: bool, top: int, progress: Progress | None
        ) -> CompactionStats: ...

    class _PurgeKey(Protocol):
        def __call__(
            self, log: LogCore, key: bytes, *, roll: bool, dry_run: bool, progress: Progress | None
        ) -> PurgeStats: ...

    class _Verify(Protocol):
        def __call__(self, log: LogCore, progress: Progress | None) -> Report: ...

    class _Plot(Protocol):
        def __call__(self, log: LogCore, cached: LogPageCache | None, ax: Axes | None) -> Axes: ...

    class _Reopen(Protocol):
        def __call__(self, path: str, config: LogConfig) -> LogCore: ...


@dataclass(frozen=True, slots=True)
class Works:
    """compact and purge_key: those of the cleaner. verify and plot: those of inspect. reopen: a log by its path, for a
    reader that another process has sent."""

    compact: _Compact
    purge_key: _PurgeKey
    verify: _Verify
    plot: _Plot
    reopen: _Reopen


def bound() -> Works:
    """The functions that klog/__init__ has bound."""
    return Works(**log_works)
