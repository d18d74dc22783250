"""LogDeletions: partition directories that were renamed to -delete, and their logs, until they are removed.

Kafka: LogManager.logsToBeDeleted, asyncDelete, deleteLogs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.disk import Files, remove_tree
from klog.log import core
from klog.log.directory.partition_names import DELETE, suffixed_name
from klog.logger import logger_of
from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.log.directory.checkpoint import Partition
    from klog.log.log import Log
    from klog.manager.directories import LogDirectory
    from klog.manager.registry import LogRegistry
    from klog.scheduler import Scheduler

_log = logger_of("manager")


@dataclass(eq=False)
class LogDeletions:
    """Of one manager, under its lock. Removals are tasks of the scheduler, which take no lock."""

    _registry: LogRegistry
    _scheduler: Scheduler
    _files: Files
    _marked: list[Log] = field(default_factory=list, init=False)  # deleted or moved away; open until removed

    def mark(self, directory: LogDirectory, key: Partition, delay_ms: int) -> None:
        """Rename a partition's directory to -delete, durably, and remove it after delay_ms. The checkpoints still hold
        it."""
        target = os.path.join(directory.path, suffixed_name(*key, DELETE))
        log = self._registry.remove(key)
        if log is not None:
            self.hold(log)  # first: if the renaming fails, nothing else refers to the log
            core.mark_for_deletion(log._core, os.path.basename(target))
        else:
            self._files.rename(directory.partition_path(*key), target)
            self._files.fsync_dir(directory.path)
        _log.info("event=partition_deleted path=%s delay_ms=%d", target, delay_ms)
        self.remove_later(directory, target, delay_ms, log)

    def hold(self, log: Log) -> None:
        """Close a log that is marked for deletion at the latest when the manager closes."""
        self._marked.append(log)

    def remove_later(self, directory: LogDirectory, path: str, delay_ms: int, log: Log | None = None) -> None:
        """Remove a -delete directory after delay_ms. If it is still there at close(), a later start removes it."""

        def remove() -> None:
            if directory.offline is None:
                with directory.guarded():
                    if log is not None:
                        core.abandon(log._core)
                        if log in self._marked:
                            self._marked.remove(log)
                    remove_tree(path, self._files)
                    self._files.fsync_dir(directory.path)

        self._scheduler.schedule("kafka-delete-logs", remove, delay_ms)

    def abandon(self) -> None:
        """Close the logs; their directories stay."""
        for log in self._marked:
            core.abandon(log._core)
