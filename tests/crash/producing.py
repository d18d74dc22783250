"""A log with idempotent and transactional producers under several leader epochs, and the states that a crash may leave.

Most lives end with unflushed appends: by a clean stop, or by the death of the process. The log at each legal end must
equal the log of a rehearsal at that end: records, producers, epochs and aborted transactions follow from the batches
(P4).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import klog
from klog.disk import Files
from tests.crash.opening import Found, LogOpener, View, open_logs, view_of
from tests.support.abandon import abandon
from tests.support.batches import batch, marker, produced, transactional
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally

TOPIC = "produced"
CONFIG = {"segment.bytes": 1600, "segment.index.bytes": 200, "index.interval.bytes": 100, "cleanup.policy": "delete"}
ENDINGS = ("close", "die", "flush and close", "close", "die", "roll and close", "roll and die", "close")


class Producing:
    """Runs the lives one after the other, and tracks the promises so far.

    views: the content of the log after each append, by log end. acknowledged: the log end of the last append() that has
    returned. durable: the log end that flush() or close() has promised. stops: log ends at which a clean-shutdown file
    may exist.
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
        self.views.setdefault(log.log_end_offset, view_of(log))
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
        self.views.setdefault(self.acknowledged, view_of(log))

    def _flush(self, log: klog.Log) -> None:
        log.flush()
        self.durable = self.acknowledged


open_state = LogOpener(TOPIC)


def check_found(found: Found, promised: Producing, views: dict[int, View], *, only_died: bool) -> None:
    """Check that the log is as promised. views: the content at every log end of the whole run."""
    least = promised.acknowledged if only_died else promised.durable
    end = 0 if found.view is None else found.view.end
    assert end >= least, f"the log ends at {end}, {least} was promised"
    if found.clean:
        assert end in promised.stops, f"a clean-shutdown file, but the log ends at {end}"
    if found.view is not None:
        assert end in views, f"the log ends at {end}, inside a batch"
        assert found.view == views[end]


def cut_producers(
    place: Path,
    *,
    stride: int = 1,
    randoms: int,
    seed: int = 0,
    share: int = 1,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of all lives."""
    rehearsal, producing = Producing(), Producing()
    rehearsal.run(place / "rehearsal")
    cuts = rig(
        place,
        open_state,
        lambda found, only_died: check_found(found, producing, rehearsal.views, only_died=only_died),
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        share=share,
        opened=opened,
        promised=lambda: (producing.acknowledged, producing.durable, producing.stops),
    )
    return cuts.run(producing.run)
