"""Opens partitions read-only: those below the paths of a query, on the driver, and the one of a range, in a task.

O1  A partition below a log.dir is opened when it is first used: one that a query does not read costs nothing, and may
    be damaged.
O2  With onCorrupt=fail, a log that recovery="strict" refuses is an error: a segment in the middle is empty or missing,
    or valid batches follow an invalid one in the last segment. Else it is opened with recovery="skip", and warnings
    name what is left out.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import klog
from klog.disk import is_directory
from klog.errors import CorruptLog, KlogError, UnknownTopicOrPartition
from klog.logger import logger_of
from klog.spark.bounds import TopicPartition

if TYPE_CHECKING:
    from klog import Log
    from klog.log.options import Policy
    from klog.spark.reading import OnCorrupt

logger = logger_of("spark")


def open_partition(path: str, on_corrupt: OnCorrupt = "fail") -> Log:
    """Open a partition's directory read-only. Raises CorruptLog (O2), and the errors of Log.open."""

    def opened(recovery: Policy) -> Log:
        return klog.Log.open(path, read_only=True, recovery=recovery)

    return _despite_damage(opened, on_corrupt)


def moved_to(path: str, log_dirs: Sequence[str]) -> str | None:
    """Return where the partition of a directory that is gone is now, None if it is in none of the log.dirs.

    A move puts it there before it leaves the other one. Raises FileNotFoundError if the whole log.dir is gone: then a
    disk or a mount is missing, and no data is lost.
    """
    home, name = os.path.split(path)
    for log_dir in log_dirs:
        place = os.path.join(log_dir, name)
        if is_directory(place):
            return place
    if not is_directory(home):
        raise FileNotFoundError(
            errno.ENOENT,
            f"the log directory does not exist on {os.uname().nodename}; all executors must have access to it",
            home,
        )
    return None


def is_partition_directory(path: str) -> bool:
    """Is this the directory of a partition, and not a log.dir?"""
    # A log directory may be named data-1, too: its content decides.
    if not re.search(r".-\d+$", os.path.basename(path)):
        return False
    return any(re.fullmatch(r"\d{20}\.log|partition\.metadata", name) for name in os.listdir(path))


class Logs(Mapping[TopicPartition, "Log"]):
    """The partitions below some paths, until `stack` is closed (O1). One thread."""

    def __init__(self, paths: Sequence[str], on_corrupt: OnCorrupt, stack: ExitStack) -> None:
        """paths: log.dirs and directories of partitions. Raises ValueError for a partition that is in two of them."""
        self._on_corrupt = on_corrupt
        stack.callback(self._close_damaged)
        self._logs: dict[TopicPartition, Log] = {}
        self._found: dict[TopicPartition, tuple[str, klog.LogManager | None]] = {}  # None: the path is that of the log
        self._log_dirs: list[tuple[str, klog.LogManager]] = []
        self._damaged: dict[TopicPartition, klog.LogManager] = {}  # O2: opened for one partition
        for path in paths:
            if is_partition_directory(path):
                log = stack.enter_context(open_partition(path, on_corrupt))
                pair = TopicPartition(log.topic, log.partition)
                self._add(pair, path, None)
                if self._found[pair][0] == path:
                    self._logs[pair] = log
            else:
                self._log_dirs.append((path, stack.enter_context(klog.open(path, read_only=True))))
        self._list()

    def follow(self) -> bool:
        """List the log.dirs again. False: a path is gone, or its log has to be loaded again: open all anew.

        Logs that are where they were stay open, except damaged ones and those that do not reach the end of their files:
        only a load distinguishes damage from an append under way.
        """
        singles = {pair: found for pair, found in self._found.items() if found[1] is None}
        if not all(map(is_directory, [*(path for path, _ in self._log_dirs), *(path for path, _ in singles.values())])):
            return False
        before, self._found = self._found, singles
        self._list()
        for pair, log in list(self._logs.items()):
            if self._found.get(pair) != before[pair] or pair in self._damaged or not _reaches_its_end(log):
                log.close()
                del self._logs[pair]
        self._close_damaged()
        return singles.keys() <= self._logs.keys()

    def _close_damaged(self) -> None:
        while self._damaged:
            self._damaged.popitem()[1].close()

    def _list(self, only: TopicPartition | None = None) -> None:
        """List the log.dirs, all but the last twice: a partition may move meanwhile to one that was listed. only: look
        for this partition."""
        for path, manager in (*self._log_dirs, *self._log_dirs[:-1]):
            for topic, numbers in manager.topics().items():
                for number in numbers:
                    pair = TopicPartition(topic, number)
                    if only in (None, pair):
                        self._add(pair, os.path.join(path, str(pair)), manager)

    def _add(self, pair: TopicPartition, path: str, manager: klog.LogManager | None) -> None:
        known, _ = before = self._found.get(pair, (path, manager))
        if before != (path, manager):
            from klog.manager.move_note import left_over  # a task of one partition needs no manager

            left = left_over([known, path])  # of a move between two log.dirs
            if path in left:
                return
            if known not in left:
                raise ValueError(f"{pair} is in two of the paths: {known} and {path}; give one of them")
            self._logs.pop(pair, None)  # that of the directory that was left over
        self._found[pair] = path, manager

    def _open(self, pair: TopicPartition) -> Log:
        manager = self._found[pair][1]
        assert manager is not None

        def opened(recovery: Policy) -> Log:
            if recovery == "strict":
                return manager.log(*pair)
            skipping = klog.open(manager.paths, read_only=True, recovery=recovery)
            self._damaged[pair] = skipping
            return skipping.log(*pair)

        return _despite_damage(opened, self._on_corrupt)

    def path(self, pair: TopicPartition) -> str:
        """The directory of a partition, which need not be open."""
        return self._found[pair][0]

    def __getitem__(self, pair: TopicPartition) -> Log:
        if pair not in self._logs:
            try:
                self._logs[pair] = self._open(pair)
            except UnknownTopicOrPartition:
                self._list(pair)  # it may have moved
                self._logs[pair] = self._open(pair)
        return self._logs[pair]

    def __contains__(self, pair: object) -> bool:
        return pair in self._found

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _reaches_its_end(log: Log) -> bool:
    """Has a log, which follows its writer, all that its files have now?"""
    try:
        log.refresh()
        return all(os.stat(last.path).st_size == last.size for last in log.segments[-1:])
    except (FileNotFoundError, KlogError):
        return False


def _despite_damage(opened: Callable[[Policy], Log], on_corrupt: OnCorrupt) -> Log:
    """O2"""
    try:
        return opened("strict")
    except CorruptLog as error:
        if on_corrupt == "fail":
            what = "without that segment" if error.kind == "gap" else "past the damage"
            error.add_note(f"onCorrupt=skipBatch reads the log {what}")
            raise
        if error.kind == "gap":
            logger.warning("event=lost_segment offset=%s reason=%r", error.offset, str(error))
    log = opened("skip")
    for left_out in log.recovery.details:
        logger.warning("event=damaged_log partition=%s reason=%r", log.name, left_out)
    return log


def open_since(log: Log) -> int | None:
    """Return the first offset of the oldest open transaction, also if the high watermark is lower; None without one."""
    found = [state.current_txn_first_offset for state in log.producers.values()]
    return min((first for first in found if first is not None), default=None)
