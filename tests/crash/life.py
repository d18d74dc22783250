"""A log with appends, rolls, truncations and deletions, and the states that a crash may leave.

The expected state is kept outside the engine. A `Legal` describes one legal state: a contiguous range of the appended
values, with bounds for the log start and the log end. While an operation runs, several states may be legal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import klog
from klog.clock import ManualClock
from klog.disk import Files
from tests.crash.opening import Found, LogOpener, Row, open_logs
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally

TOPIC = "life"
CONFIG = {
    "segment.bytes": 420,
    "segment.index.bytes": 200,
    "index.interval.bytes": 100,
    "retention.ms": 100_000,
    "file.delete.delay.ms": 1000,
}


@dataclasses.dataclass(frozen=True)
class Legal:
    """A legal state. values: all values that were appended, by offset. The log begins at or below start. It ends at or
    below end, and at or above acknowledged if the process died, or at or above durable if the power was cut."""

    values: dict[int, bytes]
    start: int = 0
    end: int = 0
    acknowledged: int = 0
    durable: int = 0


class Life:
    """Runs operations and tracks `legal`: the states that a crash at this moment may leave."""

    def __init__(self) -> None:
        self.now = Legal({})
        self.legal = [self.now]
        self.serial = 0
        self.stops: list[int] = []  # log ends at which a clean-shutdown file may exist

    def under_way(self, *legal: Legal) -> None:
        self.legal = list(legal)

    def done(self, now: Legal) -> None:
        self.now = now
        self.legal = [now]

    def append(self, log: klog.Log, count: int) -> None:
        """Append this many records in one call, each in a batch of its own."""
        for _ in range(count):
            now, value = self.now, b"%06d:" % self.serial + b"x" * 40
            self.serial += 1
            values = {**now.values, now.end: value}
            after = dataclasses.replace(now, values=values, end=now.end + 1)
            self.under_way(after)
            log.append([(b"k", value)])
            self.done(dataclasses.replace(after, acknowledged=after.end))

    def flush(self, log: klog.Log) -> None:
        log.flush()
        self.done(dataclasses.replace(self.now, durable=self.now.end))

    def roll(self, log: klog.Log) -> None:
        log.roll()

    def truncate(self, log: klog.Log, offset: int) -> None:
        now = self.now
        kept = dataclasses.replace(now, acknowledged=offset, durable=min(now.durable, offset))
        if offset < log.segments[0].base_offset:
            self.truncate_fully(log, offset, lambda: log.truncate_to(offset))
            return
        self.under_way(kept)
        log.truncate_to(offset)
        left = {at: value for at, value in now.values.items() if at < offset}
        self.done(dataclasses.replace(kept, values=left, start=min(now.start, offset), end=offset))

    def truncate_fully(self, log: klog.Log, offset: int, how: object = None) -> None:
        now = self.now
        self.under_way(dataclasses.replace(now, acknowledged=0, durable=0), Legal({}, offset, offset, offset, offset))
        if callable(how):
            how()
        else:
            log.truncate_fully_and_start_at(offset)
        self.done(Legal({}, offset, offset, offset, offset))

    def delete_records(self, log: klog.Log, before: int) -> None:
        after = dataclasses.replace(self.now, start=before)
        self.under_way(after)
        log.delete_records(before)
        self.done(after)

    def stop(self, logs: klog.LogManager) -> None:
        self.stops = [*self.stops, self.now.end]
        logs.close()
        self.done(dataclasses.replace(self.now, durable=self.now.end))

    def retain(self, log: klog.Log) -> None:
        now = self.now
        self.under_way(dataclasses.replace(now, start=now.end))
        log.apply_retention()
        everything = log.size == 0
        self.done(dataclasses.replace(now, start=log.log_start_offset, durable=now.end if everything else now.durable))


def steps(path: Path, files: Files, life: Life) -> Iterator[None]:
    """Truncations to the middle of a segment, to a segment's base offset and below the first segment; deletion of some
    and of all records; restarts at an offset. Appends follow each of these, and some are flushed. One of the later
    lives ends without a stop, the others with a stop after unflushed appends."""
    for number, one in enumerate((_whole_life, _short_life, _short_life)):
        logs = open_logs(path, files)
        try:
            if TOPIC not in logs.topics():
                logs.create_topic(TOPIC, config=CONFIG)
            yield from one(logs.log(TOPIC), life)
            if number != 1:
                life.stop(logs)
            yield
        finally:
            abandon(logs)


def _short_life(log: klog.Log, life: Life) -> Iterator[None]:
    life.append(log, 5)
    yield
    life.truncate(log, log.log_end_offset - 3)
    life.append(log, 4)
    yield
    life.delete_records(log, log.log_end_offset - 4)
    life.append(log, 1)
    yield


def _whole_life(log: klog.Log, life: Life) -> Iterator[None]:
    clock = log.clock
    assert isinstance(clock, ManualClock)
    yield
    life.append(log, 9)
    yield
    life.flush(log)
    life.append(log, 3)
    yield
    life.truncate(log, 5)
    yield
    life.append(log, 5)
    yield
    life.truncate(log, 9)
    life.append(log, 2)
    yield
    life.roll(log)
    life.roll(log)
    life.append(log, 4)
    yield
    life.truncate(log, log.segments[-1].base_offset)
    life.append(log, 1)
    yield
    life.delete_records(log, 4)
    yield
    life.retain(log)
    yield
    clock.advance(2000)
    life.append(log, 2)
    yield
    life.truncate(log, 1)
    life.append(log, 6)
    yield
    life.flush(log)
    clock.advance(200_000)
    yield
    life.retain(log)
    yield
    clock.advance(2000)
    life.append(log, 4)
    yield
    life.truncate_fully(log, 50)
    life.append(log, 6)
    yield
    life.truncate_fully(log, 50)
    life.append(log, 1)
    yield


open_state = LogOpener(TOPIC)


def check_found(found: Found, life: Life, *, power: bool) -> None:
    """Check that the log is in one of the legal states."""
    view = found.view
    if view is None:
        assert any(max(one.acknowledged, one.durable) == 0 for one in life.legal), "the topic is missing"
        return
    why = [_against(one, view.rows, view.start, view.end, power) for one in life.legal]
    assert None in why, f"[{view.start}, {view.end}): {why}"
    if found.clean:
        assert view.end in life.stops, f"a clean-shutdown file, but the log ends at {view.end}"


def _against(one: Legal, rows: tuple[Row, ...], start: int, end: int, power: bool) -> str | None:
    if any(one.values.get(offset) != value for offset, _, value, _ in rows):
        return "values that this timeline never had at these offsets"
    least = one.durable if power else one.acknowledged
    if not least <= end <= one.end:
        return f"ends at {end}, legal is {least} to {one.end}"
    if start > max(one.start, 0):
        return f"begins at {start}, above {one.start}"
    return None


def cut_life(
    place: Path,
    *,
    stride: int = 1,
    randoms: int,
    first: int = 0,
    seed: int = 0,
    share: int = 1,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of all lives."""
    life = Life()

    def live(root: Path, files: CrashFiles) -> None:
        for _ in steps(root, files, life):
            pass

    cuts = rig(
        place,
        LogOpener(TOPIC),
        lambda found, only_died: check_found(found, life, power=not only_died),
        stride=stride,
        first=first,
        randoms=randoms,
        seed=seed,
        share=share,
        opened=opened,
        promised=lambda: life.legal,
    )
    tally = cuts.run(live)
    check_found(open_state(cuts.root), life, power=True)
    return tally
