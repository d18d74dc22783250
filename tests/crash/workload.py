"""A writer on a log.dir, and the checks after a crash.

The expected state is kept outside the engine: the list of values in the order of the appends, how many of them append()
has acknowledged, and how many flush() or close() has promised to survive a power cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from klog.disk import Files
from tests.crash.opening import Found, LogOpener, open_logs
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles
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


class Ending(NamedTuple):
    """The calls at the end of a life, in this order. Without close the process dies."""

    flush: bool
    roll: bool
    close: bool


ENDINGS = (Ending(True, True, True), Ending(False, False, True), Ending(False, False, False), Ending(False, True, True))


def steps(
    path: Path,
    files: Files,
    expected: Expected,
    durability: str,
    policy: Mapping[str, object] | None = None,
    value_bytes: int = 47,
) -> Iterator[None]:
    """The lives of a writer, one operation per step: appends that roll, flushes, clean stops, deaths of the process,
    starts. Most lives end with unflushed appends.

    policy: klog.io.* keys of the topic.
    """
    serial = 0
    for ending in ENDINGS:
        logs = open_logs(path, files, durability=durability)
        try:
            if TOPIC not in logs.topics():
                logs.create_topic(TOPIC, config={**CONFIG, **(policy or {})})
            log = logs.log(TOPIC)
            yield
            for size in (1, 3, 1, 12, 2, 1, 6):
                values = [b"%06d:" % (serial + i) + b"x" * (value_bytes - 7) for i in range(size)]
                serial += size
                expected.values += values
                log.append([(b"k", value) for value in values], compression="lz4" if size == 12 else None)
                expected.acknowledged = len(expected.values)
                if durability == "sync":
                    expected.durable = expected.acknowledged
                yield
                if size == 3 or (size == 6 and ending.flush):
                    log.flush()
                    expected.durable = expected.acknowledged
                    yield
            if ending.roll:
                log.roll()
                yield
            if ending.close:
                expected.stops = [*expected.stops, expected.acknowledged]
                logs.close()
                expected.durable = expected.acknowledged
                yield
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
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of all lives."""
    expected = Expected()

    def write(root: Path, files: CrashFiles) -> None:
        for _ in steps(root, files, expected, durability, *policy):
            pass

    cuts = rig(
        place,
        open_state,
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
