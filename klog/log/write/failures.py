"""A log goes offline when its disk fails, even if Ctrl-C interrupts.

Python may run a signal handler after any call. An exception of the handler replaces the error that was being raised,
and the kernel reports a failed sync only once (S2). So every exception out of a sync is searched for the failed sync
in its context. A sync that returned successfully before the interruption has not failed.
"""

from __future__ import annotations

from collections.abc import Callable

from klog.disk import failed_sync_in, is_final, lacks_descriptors
from klog.log.state._log_core import LogCore


def guard(log: LogCore, action: Callable[[], object], passing: Callable[[OSError], bool] | None = None) -> None:
    """Run an action whose failure is final, except the OSErrors for which passing(error) is true."""
    try:
        action()
    except BaseException as error:
        try:
            note_failure(log, error, passing)
        except BaseException:  # Ctrl-C: do it once more, then raise
            note_failure(log, error, passing)
            raise
        raise


def note_failure(log: LogCore, error: BaseException, passing: Callable[[OSError], bool] | None = None) -> None:
    """Go offline if the error is final, as in guard(), or has a failed sync in its context."""
    failed: OSError | None = failed_sync_in(error)
    if failed is None and isinstance(error, OSError) and not (passing is not None and passing(error)):
        failed = error
    if failed is not None:
        log.go_offline(str(failed))
        failed.noted = True  # type: ignore[attr-defined]


def guard_sync(log: LogCore, action: Callable[[], object]) -> None:
    """Run a sync, whose failure is final, except a lack of file descriptors."""
    guard(log, action, lacks_descriptors)


def guard_undoable(log: LogCore, action: Callable[[], object]) -> None:
    """Run an action that can be undone: its failure is final if the disk, or a sync, has failed, and not if space or
    another resource has run out (P6)."""
    guard(log, action, lambda error: not is_final(error))


def uninterrupted(log: LogCore, action: Callable[[], object]) -> None:
    """Run an action that must not be interrupted: any exception, also Ctrl-C, takes the log offline."""
    try:
        action()
    except BaseException as error:
        disk = isinstance(error, OSError) or failed_sync_in(error) is not None
        log.go_offline(repr(error), disk=disk)
        raise
