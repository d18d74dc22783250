"""A log with idempotent and transactional producers under several leader epochs, and what a crash may leave of it.

Most lives end with unflushed appends: by a stop, or by the death of the process. The log at each legal end must equal a
rehearsal's log at that end: records, producers, epochs and aborted transactions are functions of the batches (P4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import klog
from klog.disk import Files
from klog.log.load.loader import Policy
from tests.crash.workload import open_logs, recovery_point
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.crash_files import State
from tests.support.power_cuts import PowerCuts, Tally

TOPIC = "produced"
CONFIG = {"segment.bytes": 1600, "segment.index.bytes": 200, "index.interval.bytes": 100, "cleanup.policy": "delete"}
ENDINGS = ("close", "die", "flush and close", "close", "die", "roll and close", "roll and die", "close")


@dataclasses.dataclass(frozen=True)
class View:
    """The observable state of a log."""

    records: tuple[tuple[Any, ...], ...] = ()
    producers: Any = None
    epochs: Any = None
    aborted: Any = None


def view(log: klog.Log) -> View:
    records = log.read(isolation="log_end", include_control=True)
    return View(
        tuple((record.offset, record.key, record.value, record.timestamp) for record in records),
        log.producers,
        log.leader_epochs,
        log.aborted_transactions(),
    )


class Producing:
    """The lives, in sequence, and the promises so far.

    views: by log end, for each end of an append. acknowledged, durable: log ends for which append() has returned, and
    that flush() or close() has promised. stops: log ends at which a clean-shutdown file may exist.
    """

    def __init__(self, endings: tuple[str, ...] = ENDINGS) -> None:
        self.views: dict[int, View] = {}
        self.acknowledged = 0
        self.durable = 0
        self.stops: list[int] = []
        self._endings = endings
        self._sequences: dict[int, int] = {}
        self._epoch = 0

    def run(self, root: Path, files: Files | None = None) -> None:
        for life, ending in enumerate(self._endings):
            logs = open_logs(root, files)
            try:
                if TOPIC not in logs.topics():
                    logs.create_topic(TOPIC, config=CONFIG)
                log = logs.log(TOPIC)
                self._appends(log, life)
                if "flush" in ending:
                    self._flush(log)
                if "roll" in ending:
                    log.roll()
                if "close" in ending:
                    self.stops = [*self.stops, self.acknowledged]
                    logs.close()
                    self.durable = self.acknowledged
            finally:
                abandon(logs)

    def _appends(self, log: klog.Log, life: int) -> None:
        self.views.setdefault(log.log_end_offset, view(log))
        self._append(log, produced(1, 0, self._sequence(1, 2), 2))
        self._append(log, transactional(7, 0, self._sequence(7, 3), 3, key=b"t"))
        self._append(log, batch(4 + life % 3, compression="lz4"))
        if life % 3 == 1:
            self._flush(log)
        self._append(log, produced(20 + life, 0, 0, 1))
        self._epoch += life % 2
        self._append(log, marker(7, 0, "abort" if life % 2 else "commit"), origin="coordinator")
        self._append(log, transactional(8, 0, self._sequence(8, 2), 2, key=b"u"))
        self._append(log, batch([b"x" * (90 + 40 * life)] * 3))
        self._append(log, marker(8, 0, "commit" if life % 2 else "abort"), origin="coordinator")
        self._append(log, transactional(9, 0, self._sequence(9, 1), 1))  # ended in the next life
        self._append(log, batch([b"last of life %d" % life]))

    def _sequence(self, pid: int, count: int) -> int:
        first = self._sequences.get(pid, 0)
        self._sequences[pid] = first + count
        return first

    def _append(self, log: klog.Log, data: bytes, origin: Any = "client") -> None:
        log.append_batches(data, origin=origin, leader_epoch=self._epoch)
        self.acknowledged = log.log_end_offset
        self.views.setdefault(self.acknowledged, view(log))

    def _flush(self, log: klog.Log) -> None:
        log.flush()
        self.durable = self.acknowledged


@dataclasses.dataclass(frozen=True)
class Found:
    """What klog has found in a crash state; clean: with a clean-shutdown file. end is None without the topic."""

    clean: bool = False
    end: int | None = None
    view: View = View()


def look(root: Path, recovery: Policy) -> Found:
    """Open the log, append, open it again."""
    point = recovery_point(root, TOPIC)
    with open_logs(root, recovery=recovery) as logs:
        clean = logs.clean_shutdown
        if TOPIC not in logs.topics():
            return Found(clean)
        log = logs.log(TOPIC)
        assert log.log_end_offset >= point, "the recovery point is above the log end on disk"
        found = Found(clean, log.log_end_offset, view(log))
        assert [record[0] for record in found.view.records] == list(range(log.log_end_offset)), "a hole"
        log.append([(None, b"after", NOW)])
    with open_logs(root) as logs:
        log = logs.log(TOPIC)
        assert log.recovery.clean_shutdown
        again = view(log)
        assert (again.records[:-1], again.producers) == (found.view.records, found.view.producers)
        assert [problem for problem in log.verify().problems if problem.kind != "leftover"] == []
    return found


def judge(found: Found, promised: Producing, views: dict[int, View], *, only_died: bool) -> None:
    """views: of all ends that there will be."""
    least = promised.acknowledged if only_died else promised.durable
    assert (found.end or 0) >= least, f"the log ends at {found.end}, {least} was promised"
    if found.clean:
        assert (found.end or 0) in promised.stops, f"a clean-shutdown file, but the log ends at {found.end}"
    if found.end is not None:
        assert found.end in views, f"the log ends at {found.end}, inside a batch"
        assert found.view == views[found.end]


def cut_producers(
    place: Path,
    *,
    stride: int,
    randoms: int,
    seed: int = 0,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
) -> Tally:
    """Cut the power at every `stride`th operation of all lives."""
    rehearsal, producing = Producing(), Producing()
    rehearsal.run(place / "rehearsal")
    cuts = PowerCuts(
        place,
        look,
        lambda found, only_died: judge(found, producing, rehearsal.views, only_died=only_died),
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        opened=opened,
    )
    return cuts.run(producing.run)
