"""Opens a crash state with klog: opens the log.dir, and reads one log of it completely.

A quick check ends there, as if the process had died. A full check also appends, stops, opens the log.dir again, reads
again and verifies every file. A second crash cuts the power while klog opens the log.dir.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.disk import Files, HandleCache
from klog.log.directory import checkpoint
from klog.log.options import Options, Policy
from klog.scheduler import Scheduler
from klog.values import replace
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles
from tests.support.crash_states import State, digest_of
from tests.support.power_cuts import cut_while


def open_logs(
    path: Path, files: Files | None = None, *, clock: ManualClock | None = None, **options: Any
) -> klog.LogManager:
    return klog.open(path, create=True, files=files, clock=clock or ManualClock(), **options)


def recovery_point(path: Path, topic: str) -> int:
    """The recovery point of a topic's only partition in the checkpoint (S9); 0 without one."""
    return checkpoint.read_offsets(str(path / checkpoint.RECOVERY_POINT)).get((topic, 0), 0)


Row = tuple[int, bytes | None, bytes | None, int]
"""Offset, key, value, timestamp."""


@dataclasses.dataclass(frozen=True)
class View:
    """The observable state of a log, [start, end)."""

    start: int = 0
    end: int = 0
    rows: tuple[Row, ...] = ()
    producers: Any = ()
    epochs: Any = ()
    aborted: Any = ()

    @property
    def values(self) -> list[bytes | None]:
        return [value for _, _, value, _ in self.rows]


@dataclasses.dataclass(frozen=True)
class Found:
    """What klog found in a state. clean: the log.dir has a clean-shutdown file. view: None if the topic is missing."""

    clean: bool
    view: View | None


def view_of(log: klog.Log, stop: int | None = None) -> View:
    """The content of a log, including control records. stop: without the records from this offset on."""
    end = log.log_end_offset if stop is None else stop
    records = log.read(stop=end, isolation="log_end", include_control=True)
    return View(
        log.log_start_offset,
        end,
        tuple([(record.offset, record.key, record.value, record.timestamp) for record in records]),
        tuple(log.producers.items()),
        tuple(log.leader_epochs),
        tuple(log.aborted_transactions()),
    )


@dataclasses.dataclass(frozen=True)
class _Start:
    """How a manager opens the log in all log.dirs with the same files outside the partitions. options: None if the
    topic is missing. point: the recovery point in the checkpoint."""

    clean: bool
    point: int
    options: Options | None


class LogOpener:
    """Opens crash states of a log.dir whose only partition is `<topic>-0`.

    through_manager: how many quick checks have opened a LogManager. In the other checks, the log.dir has the same files
    outside the partition as an earlier state. Then only the partition is opened, with the options that the manager read
    from these files before.
    """

    def __init__(self, topic: str, *, gaps: bool = False) -> None:
        self.topic = topic
        self.through_manager = 0
        self._gaps = gaps
        self._starts: dict[int, _Start] = {}

    def __call__(self, root: Path, recovery: Policy = "strict") -> Found:
        """Make a full check."""
        point = recovery_point(root, self.topic)
        with open_logs(root, recovery=recovery) as logs:
            found = self._found(logs, point)
            if found.view is None:
                return found
            log, view = logs.log(self.topic), found.view
            for offset in range(view.start, view.end, 5):
                assert next(iter(log.read(offset, isolation="log_end", include_control=True))).offset >= offset
            assert log.append([(None, b"after", NOW)]).first_offset == view.end
        with open_logs(root) as logs:
            log = logs.log(self.topic)
            assert log.recovery.clean_shutdown
            again = view_of(log, view.end)
            assert (again.rows, again.producers, again.aborted) == (view.rows, view.producers, view.aborted)
            assert log.log_end_offset == view.end + 1
            assert [problem for problem in log.verify().problems if problem.kind not in ("leftover", *self._fine)] == []
        return found

    @property
    def _fine(self) -> tuple[str, ...]:
        return ("gap",) if self._gaps else ()

    def _found(self, logs: klog.LogManager, point: int) -> Found:
        if self.topic not in logs.topics():
            return Found(logs.clean_shutdown, None)
        return Found(logs.clean_shutdown, self._read(logs.log(self.topic), point))

    def _read(self, log: klog.Log, point: int) -> View:
        view = view_of(log)
        assert view.end >= point, "the recovery point is above the log end on disk"
        if not self._gaps:
            assert [row[0] for row in view.rows] == list(range(view.start, view.end)), "a hole"
        return view

    def quick(self, state: State, root: Path, recovery: Policy) -> Found:
        """Make a quick check of the state, whose files are at root: open it, read it, and abandon it."""
        partition = f"{self.topic}-0"
        if state.directories != (".", partition):
            return self._by_manager(root, recovery)[0]
        beside = digest_of({path: data for path, data in state.files.items() if "/" not in path})
        start = self._starts.get(beside)
        if start is None:
            found, self._starts[beside] = self._by_manager(root, recovery)
            return found
        if start.options is None:
            return Found(start.clean, None)
        options = replace(
            start.options,
            recovery=recovery,
            handles=HandleCache(),
            scheduler=Scheduler(start.options.clock),
            topic_id_stored=checkpoint.check_topic_id(f"{root}/{partition}", start.options.topic_id),
        )
        log = klog.Log(f"{root}/{partition}", options)
        try:
            return Found(start.clean, self._read(log, start.point))
        finally:
            abandon(log)

    def _by_manager(self, root: Path, recovery: Policy) -> tuple[Found, _Start]:
        self.through_manager += 1
        point = recovery_point(root, self.topic)
        logs = open_logs(root, recovery=recovery)
        try:
            found = self._found(logs, point)
            options = None if found.view is None else logs.log(self.topic)._core.options
            return found, _Start(found.clean, point, options)
        finally:
            abandon(logs)

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State:
        """Open the log.dir at root, and cut the power at one of the first operations. Returns the state after that."""

        def work(files: CrashFiles) -> None:
            logs = open_logs(root, files, recovery=recovery)
            try:
                if self.topic in logs.topics():
                    logs.log(self.topic)
            finally:
                abandon(logs)

        return cut_while(root, rng, 24, work)
