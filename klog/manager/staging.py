"""The driver's side of a staged job: commit it, or abort it, in a log.dir that no other process writes.

Tasks stage files with klog.log.staged.writing.StagedWriter; commits.py has the steps of a commit.
"""

from __future__ import annotations

import contextlib
import os

from klog.clock import Clock
from klog.disk import Files, RealFiles
from klog.log.staged import layout, writers
from klog.manager.commits import Committed, StagedJob
from klog.manager.manager import open_directory


def commit_staged(
    path: str, job: StagedJob, *, clock: Clock | None = None, files: Files | None = None
) -> Committed | None:
    """Append the files of a job, all or none; see Commits.commit. Takes the lock of the log.dir.

    Raises AlreadyLocked, which names the holder.
    """
    files = files or RealFiles()
    if job.files:
        writers.announce(path, job.token, writers.driver(), files)  # else the start could take the job for over
    with open_directory(path, clock=clock, files=files) as logs:
        return logs._commits.commit(job)


def abort_staged(path: str, token: str, *, clock: Clock | None = None, files: Files | None = None) -> bool:
    """Remove the staging of a job that will not be committed. If its manifest is there it was committed: then finish
    that. Returns whether it was committed."""
    files = files or RealFiles()
    if os.path.exists(layout.commit_path(path, layout.check_token(token))):
        with open_directory(path, clock=clock, files=files):
            return True
    with contextlib.suppress(FileNotFoundError):
        writers.remove_staging(path, token, files)
    return False
