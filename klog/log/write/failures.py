"""What a log does about a disk that fails: it goes offline, and that is certain also where Ctrl-C comes in between.

Python runs a signal's handler behind any call. What that raises takes the place of the error that was on its way, and
nobody else will ever hear of a failed sync (S2): so whatever came out of a sync is asked for the one it has come over.
A sync that came back well, and was interrupted behind that, has not failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klog.disk import failed_sync_in

if TYPE_CHECKING:
    from klog.log.log import Log


def guard(log: Log, action: Callable[[], object], passing: Callable[[OSError], bool] | None = None) -> None:
    """Run something whose failure is final, but for those OSErrors that are passing."""
    try:
        action()
    except BaseException as error:
        try:
            hear(log, error, passing)
        except BaseException:  # Ctrl-C: once more, and then it is raised
            hear(log, error, passing)
            raise
        raise


def hear(log: Log, error: BaseException, passing: Callable[[OSError], bool] | None = None) -> None:
    """Go offline if this is what guard() calls final, or has come over a failed sync."""
    failed: OSError | None = failed_sync_in(error)
    if failed is None and isinstance(error, OSError) and not (passing is not None and passing(error)):
        failed = error
    if failed is not None:
        log._go_offline(str(failed))
        failed.heard = True  # type: ignore[attr-defined]
