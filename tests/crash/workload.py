"""A writer on a log.dir, and the checks after a crash.

The expected state is kept outside the engine: the list of values in the order of the appends, how many of them append()
has acknowledged, and how many flush() or close() has promised to survive a power cut. With `deaths` a process may also
die inside any call, and the next one goes on with what it finds.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from klog.disk import Files
from tests.crash.opening import Found, LogOpener, open_logs
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles, random_deaths, until_done
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally

TOPIC = "events"
CONFIG = {"segment.bytes": 700, "segment.index.bytes": 200, "index.interval.bytes": 100, "cleanup.policy": "delete"}


@dataclasses.dataclass
class Expected:
    """values: every value passed to append, in order. acknowledged: for how many of them append() has returned.
    durable: for how many flush() or close() has returned. stops: the numbers of values at clean stops."""

    values: list[bytes] = dataclasses.field(default_factory=list)
    acknowledged: int = 0
    durable: int = 0
    stops: list[int] = dataclasses.field(default_factory=list)
    serial: int = 0

    def goes_on_from(self, found: list[bytes | None]) -> None:
        """A new process has found these values. They are on disk from now on."""
        assert found == self.values[: len(found)], "a new process finds no prefix"
        assert len(found) >= self.acknowledged, f"a new process finds {len(found)} values of {self.acknowledged}"
        self.values = self.values[: len(found)]
        self.acknowledged = self.durable = len(found)

    def more(self, count: int, size: int) -> list[bytes]:
        self.serial += count
        made = [b"%06d:" % at + b"x" * (size - 7) for at in range(self.serial - count, self.serial)]
        self.values = [*self.values, *made]
        return made


class Ending(NamedTuple):
    """The calls at the end of a life, in this order. Without close the process dies."""

    flush: bool
    roll: bool
    close: bool


ENDINGS = (Ending(True, True, True), Ending(False, False, True), Ending(False, False, False), Ending(False, True, True))


def live(
    path: Path,
    files: Files,
    expected: Expected,
    ending: Ending,
    durability: str,
    policy: Mapping[str, object],
    value_bytes: int,
) -> None:
    """One life of a writer: appends that roll, and flushes. Most lives end with unflushed appends.

    policy: klog.io.* keys of the topic.
    """
    logs = open_logs(path, files, durability=durability)
    try:
        if TOPIC not in logs.topics():
            logs.create_topic(TOPIC, config={**CONFIG, **policy})
        log = logs.log(TOPIC)
        expected.goes_on_from([record.value for record in log.read()])
        for size in (1, 3, 1, 12, 2, 1, 6):
            values = expected.more(size, value_bytes)
            log.append([(b"k", value) for value in values], compression="lz4" if size == 12 else None)
            expected.acknowledged = len(expected.values)
            if durability == "sync":
                expected.durable = expected.acknowledged
            if size == 3 or (size == 6 and ending.flush):
                log.flush()
                expected.durable = expected.acknowledged
        if ending.roll:
            log.roll()
        if ending.close:
            expected.stops = [*expected.stops, expected.acknowledged]
            logs.close()
            expected.durable = expected.acknowledged
    finally:
        abandon(logs)


open_state = LogOpener(TOPIC)


def check_found(found: Found, expected: Expected, at_least: int) -> None:
    """Check that the log has a prefix of the appended values, with at least `at_least` of them. If there is a
    clean-shutdown file, the number of values must be that of a clean stop."""
    assert found.view is not None or at_least == 0, "the topic is missing"
    values = [] if found.view is None else found.view.values
    assert values == expected.values[: len(values)], "not a prefix of what was appended"
    assert len(values) >= at_least, f"{len(values)} values left of {at_least} promised"
    if found.clean:
        assert len(values) in expected.stops, f"a clean-shutdown file, but {len(values)} values"


Policy = tuple[dict[str, object], int]
"""klog.io.* keys of the topic, and the length of the values."""

POLICIES: dict[str, Policy] = {
    "zeros": ({"klog.io.preallocate": "zeros"}, 47),
    "none": ({"klog.io.preallocate": "none"}, 47),
    "behind": ({"klog.io.write.behind.bytes": 4096, "internal.segment.bytes": 30_000}, 2000),
    "dontcache": ({"klog.io.write": "dontcache"}, 47),
    "direct": ({"klog.io.write": "direct", "internal.segment.bytes": 50_000}, 3000),
    "direct-zeros": (
        {"klog.io.write": "direct", "klog.io.preallocate": "zeros", "internal.segment.bytes": 50_000},
        3000,
    ),
}
"""Write policies other than the default, which tests without a policy use, and the length of the values."""


def cut_writer(
    place: Path,
    durability: str,
    *,
    stride: int = 1,
    randoms: int,
    first: int = 0,
    seed: int = 0,
    share: int = 1,
    policy: Policy = ({}, 47),
    dies: bool = False,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of all lives. dies: before that processes may die in any one."""
    expected, rng = Expected(), random.Random(seed) if dies else None

    def write(root: Path, files: CrashFiles) -> None:
        for ending in ENDINGS:
            deaths = () if rng is None else random_deaths(rng, 60)
            until_done(files, deaths, partial(live, root, files, expected, ending, durability, *policy))

    cuts = rig(
        place,
        LogOpener(TOPIC),
        lambda found, only_died: check_found(found, expected, expected.acknowledged if only_died else expected.durable),
        stride=stride,
        first=first,
        randoms=randoms,
        seed=seed,
        share=share,
        torn=policy[0].get("klog.io.write") == "direct",  # an append makes several writes
        opened=opened,
        promised=lambda: expected,
    )
    tally = cuts.run(write)
    whole = open_state(cuts.root)
    check_found(whole, expected, len(expected.values))
    assert whole.clean
    return tally
