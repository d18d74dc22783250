"""The driver's side of a staged job: commit it, or abort it, in a log.dir that no other process writes.

Tasks stage files with klog.log.staged.writing.StagedWriter; commits.py has the steps of a commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from klog.clock import Clock, SystemClock
from klog.disk import DirectoryLock, Files, RealFiles
from klog.errors import AlreadyLocked
from klog.log.staged import layout, writers
from klog.logger import logger_of
from klog.manager import open_directory

if TYPE_CHECKING:
    from klog.manager.commits import Committed, StagedJob

_log = logger_of("manager")
T = TypeVar("T")
LOCK_WAIT_S = 10.0
_PAUSE_S = 0.05


def commit_staged(
    path: str, job: StagedJob, *, clock: Clock | None = None, files: Files | None = None
) -> Committed | None:
    """Append the files of a job, all or none; see Commits.commit. Takes the lock of the log.dir.

    Raises AlreadyLocked, which names the holder, if another one has the lock for LOCK_WAIT_S: the commit of another job
    takes less. An OSError after the commit is logged: the records are there.
    """
    clock, files = clock or SystemClock(), files or RealFiles()
    if job.files:
        writers.announce(path, job.token, writers.driver(), files)  # else the start could take the job for over
    is_committed, result = False, None
    try:
        with when_unlocked(lambda: open_directory(path, clock=clock, files=files), clock) as logs:
            result = logs._commits.commit(job)
            is_committed = True
    except OSError as error:
        if not is_committed:
            raise
        _log.warning("event=close_failed_after_commit token=%s error=%s", job.token, error)
    return result


def when_unlocked(take: Callable[[], T], clock: Clock) -> T:
    """Return what `take` returns when no other holder has the lock that it needs. Raises AlreadyLocked after
    LOCK_WAIT_S."""
    end = clock.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return take()
        except AlreadyLocked:
            if clock.monotonic() >= end:
                raise
        clock.sleep(_PAUSE_S)


def abort_staged(path: str, token: str, *, clock: Clock | None = None, files: Files | None = None) -> bool:
    """Remove the staging of a job that will not be committed. If its manifest is there it was committed: then finish
    that, under the lock of the log.dir. Returns whether it was committed.

    Without a manifest it does not need the lock: only directories that the job has made, and that are empty then, are
    left to the next start while another process holds it. Raises AlreadyLocked if there is a manifest.
    """
    files = files or RealFiles()
    layout.check_token(token)
    lock = None
    try:
        with contextlib.suppress(AlreadyLocked):
            lock = DirectoryLock(path)
        try:
            if writers.withdraw(path, token, files, alone=lock is not None):
                return False
        finally:
            if lock is not None:
                lock.release()
    except FileNotFoundError:
        return False
    with open_directory(path, clock=clock, files=files):
        return True
