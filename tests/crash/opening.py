"""Opens a crash state with klog: opens the log.dir, and reads one log of it completely.

A quick check ends there, as if the process had died. A full check also appends, stops, opens the log.dir again, reads
again and verifies every file. A second crash cuts the power while klog opens the log.dir.

A quick check leaves out work whose result follows from that of an earlier state:

    start of a log.dir     depends on the files outside the partition and on the names of the directories. Of states in
                           which these are the same, the first one starts a manager. In the others only the partition is
                           loaded, with the options that this manager read
    load of a partition    depends on the files of its directory and on its options. A manager does not load a partition
                           again if it was loaded with the same ones
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

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


Content = TypeVar("Content")
_DECISIVE = ("recovery", "durability", "clean_shutdown", "recovery_point", "log_start_offset", "topic_id",
             "topic_id_stored", "cleaned_to", "config_known")  # fmt: skip


class Loads(Generic[Content]):
    """Loads partitions, and reads them by `read`: once for the same files and options. known: the results."""

    def __init__(self, read: Callable[[klog.Log], Content]) -> None:
        self.known: dict[object, Content] = {}
        self._read = read

    def of(self, logs: klog.LogManager, topic: str, partition: int = 0) -> Content:
        options, path = options_of(logs, topic, partition)
        decisive = *(getattr(options, name) for name in _DECISIVE), repr(options.config)
        key = topic, partition, digest_of(dict(_tree(path))), decisive
        if key not in self.known:
            self.known[key] = self._read(logs.log(topic, partition))
        return self.known[key]


def options_of(logs: klog.LogManager, topic: str, partition: int = 0) -> tuple[Options, str]:
    """How a manager will load a partition, and the path of its directory."""
    directory, _ = logs._catalog.locate(topic, partition)
    path = directory.partition_path(topic, partition)
    return logs._registry.options(directory, (topic, partition), path), path


def _tree(path: str) -> Iterator[tuple[str, bytes]]:
    for directory, _, names in os.walk(path):
        yield f"{directory[len(path) :]}/", b""
        for name in names:
            with open(f"{directory}/{name}", "rb", buffering=0) as file:
                yield f"{directory[len(path) :]}/{name}", file.read()


@dataclasses.dataclass(frozen=True)
class Start:
    """What a manager found outside the partition. clean: a clean-shutdown file. point: the recovery point in the
    checkpoint. options: how to load the partition; None if the topic is missing."""

    clean: bool
    point: int
    options: Options | None


class PartitionOpener(Generic[Content]):
    """Opens crash states of a log.dir whose only partition is `<topic>-0`, and reads it by `read`.

    open_logs(root, recovery=) starts a manager. through_manager: for how many states it was called.
    """

    def __init__(
        self, topic: str, read: Callable[[klog.Log], Content], open_logs: Callable[..., klog.LogManager] = open_logs
    ) -> None:
        self.through_manager = 0
        self._topic, self._read, self._open_logs = topic, read, open_logs
        self._loads = Loads(read)
        self._starts: dict[object, Start] = {}

    def __call__(self, state: State, root: Path, recovery: Policy) -> tuple[Start, Content | None]:
        """Open the state, whose files are at root, read it, and abandon it. None if the topic is missing."""
        partition = f"{self._topic}-0"
        own = partition + "/"
        beside = digest_of({path: data for path, data in state.files.items() if not path.startswith(own)})
        start = self._starts.get((beside, state.directories))
        if start is None:
            start, content = self._by_manager(root, recovery)
            self._starts[beside, state.directories] = start
            return start, content
        if start.options is None:
            return start, None
        options = replace(
            start.options,
            recovery=recovery,
            handles=HandleCache(),
            scheduler=Scheduler(start.options.clock),
            topic_id_stored=checkpoint.check_topic_id(f"{root}/{partition}", start.options.topic_id),
        )
        log = klog.Log(f"{root}/{partition}", options)
        try:
            return start, self._read(log)
        finally:
            abandon(log)

    def _by_manager(self, root: Path, recovery: Policy) -> tuple[Start, Content | None]:
        self.through_manager += 1
        point = recovery_point(root, self._topic)
        logs = self._open_logs(root, recovery=recovery)
        try:
            if self._topic not in logs.topics():
                return Start(logs.clean_shutdown, point, None), None
            options, _ = options_of(logs, self._topic)
            return Start(logs.clean_shutdown, point, options), self._loads.of(logs, self._topic)
        finally:
            abandon(logs)


class LogOpener:
    """Opens crash states of a log.dir whose only partition is `<topic>-0`."""

    def __init__(self, topic: str, *, gaps: bool = False) -> None:
        self.topic = topic
        self._gaps = gaps
        self._opener = PartitionOpener(topic, view_of)

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
        return Found(logs.clean_shutdown, self._checked(view_of(logs.log(self.topic)), point))

    def _checked(self, view: View, point: int) -> View:
        assert view.end >= point, "the recovery point is above the log end on disk"
        if not self._gaps:
            assert [row[0] for row in view.rows] == list(range(view.start, view.end)), "a hole"
        return view

    def quick(self, state: State, root: Path, recovery: Policy) -> Found:
        """Make a quick check of the state, whose files are at root."""
        start, view = self._opener(state, root, recovery)
        return Found(start.clean, None if view is None else self._checked(view, start.point))

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
