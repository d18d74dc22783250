"""A log with idempotent and transactional producers under several leader epochs, and the states that a crash may leave.

Most lives end with unflushed appends: by a clean stop, or by the death of the process. The log at each legal end must
equal the log of a rehearsal at that end: records, producers, epochs and aborted transactions follow from the batches
(P4). With `deaths` a process may also die inside any call. The next one goes on with the script of that life; an
idempotent producer sends its last batch again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import klog
from klog.disk import Files
from tests.crash.opening import Found, LogOpener, View, open_logs, view_of
from tests.support.abandon import abandon
from tests.support.batches import batch, marker, produced, transactional
from tests.support.crash_files import CrashFiles, random_deaths, until_done
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally

TOPIC = "produced"
CONFIG = {"segment.bytes": 1600, "segment.index.bytes": 200, "index.interval.bytes": 100, "cleanup.policy": "delete"}
ENDINGS = ("close", "die", "flush and close", "close", "die", "roll and close", "roll and die", "close")


class Append(NamedTuple):
    """An append of a life's script. end: the log end after it."""

    data: bytes
    origin: Any
    leader_epoch: int
    end: int


class Producing:
    """Runs the lives one after the other, and tracks the promises so far.

    views: the content of the log after each append, by log end, those of a rehearsal or of this run. acknowledged: the
    log end of the last append() that has returned. durable: the log end that flush() or close() has promised. stops:
    log ends at which a clean-shutdown file may exist.
    """

    def __init__(
        self,
        views: dict[int, View] | None = None,
        deaths: random.Random | None = None,
        endings: tuple[str, ...] = ENDINGS,
    ) -> None:
        self.views: dict[int, View] = {} if views is None else views
        self.acknowledged = 0
        self.durable = 0
        self.stops: list[int] = []
        self._endings = endings
        self._sequences: dict[int, int] = {}
        self._epoch = 0
        self._end = 0
        self._deaths = deaths

    def run(self, root: Path, files: Files) -> None:
        for life, ending in enumerate(self._endings):
            script = [*self._script(life)]
            deaths = () if self._deaths is None else random_deaths(self._deaths, 70)
            until_done(files, deaths, partial(self._live, root, files, script, ending))

    def _live(self, root: Path, files: Files, script: list[Append | None], ending: str) -> None:
        logs = open_logs(root, files)
        try:
            if TOPIC not in logs.topics():
                logs.create_topic(TOPIC, config=CONFIG)
            log = logs.log(TOPIC)
            self._goes_on_from(log)
            for each in script:
                if each is None:
                    self._flush(log)
                else:
                    self._append(log, each)
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

    def _goes_on_from(self, log: klog.Log) -> None:
        """What a new process finds is on disk from now on."""
        view = view_of(log)
        assert view.end >= self.acknowledged and view == self.views.setdefault(view.end, view)
        self.acknowledged = self.durable = view.end

    def _script(self, life: int) -> Iterator[Append | None]:
        """The appends of a life, and None for a flush."""
        yield self._made(produced(1, 0, self._sequence(1, 2), 2))
        yield self._made(transactional(7, 0, self._sequence(7, 3), 3, key=b"t"))
        yield self._made(batch(4 + life % 3, compression="lz4"))
        if life % 3 == 1:
            yield None
        yield self._made(produced(20 + life, 0, 0, 1))
        self._epoch += life % 2
        yield self._made(marker(7, 0, "abort" if life % 2 else "commit"), origin="coordinator")
        yield self._made(transactional(8, 0, self._sequence(8, 2), 2, key=b"u"))
        yield self._made(batch([b"x" * (90 + 40 * life)] * 3))
        yield self._made(marker(8, 0, "commit" if life % 2 else "abort"), origin="coordinator")
        yield self._made(transactional(9, 0, self._sequence(9, 1), 1))  # ended in the next life
        yield self._made(batch([b"last of life %d" % life]))

    def _made(self, data: bytes, origin: Any = "client") -> Append:
        self._end += sum(len(one) for one in klog.record.decode(data))
        return Append(data, origin, self._epoch, self._end)

    def _sequence(self, pid: int, count: int) -> int:
        first = self._sequences.get(pid, 0)
        self._sequences[pid] = first + count
        return first

    def _append(self, log: klog.Log, each: Append) -> None:
        """Append, unless an earlier process of this life has done it."""
        end = log.log_end_offset
        if end > each.end or (end == each.end and not _is_idempotent(each)):
            return
        log.append_batches(each.data, origin=each.origin, leader_epoch=each.leader_epoch)
        assert log.log_end_offset == each.end, "sent again, and appended again"
        self.acknowledged = each.end
        if end < each.end and each.end not in self.views:
            self.views[each.end] = view_of(log)

    def _flush(self, log: klog.Log) -> None:
        log.flush()
        self.durable = self.acknowledged


def _is_idempotent(each: Append) -> bool:
    (one,) = klog.record.decode(each.data)
    return one.producer_id >= 0 and not one.is_control


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
    dies: bool = False,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of all lives. dies: before that processes may die in any one."""
    rehearsal = Producing()
    rehearsal.run(place / "rehearsal", CrashFiles())
    producing = Producing(dict(rehearsal.views), random.Random(seed) if dies else None)
    cuts = rig(
        place,
        LogOpener(TOPIC),
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
