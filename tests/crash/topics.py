"""Topics that are created, extended, appended to, moved between two log.dirs and deleted, and the states that a crash
may leave.

A topic is there as a whole or not at all, and so are partitions that are added to it. Each of its partitions is a
prefix of what was appended, in one of the log.dirs (P1 to P3); a deleted topic does not come back. With `deaths` the
process may also die inside an operation, and the next one goes on with what it finds.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.log.options import Policy
from tests.crash.opening import Loads
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles, dying
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally, cut_while

CONFIG = {"segment.bytes": 300, "segment.index.bytes": 96, "index.interval.bytes": 1, "file.delete.delay.ms": 1000}
Content = tuple[tuple[str, int, tuple[bytes | None, ...]], ...]
"""Topic, partition, values: of all partitions."""


def open_both(root: Path, clock: ManualClock | None = None, **options: Any) -> klog.LogManager:
    return klog.open([root / "a", root / "b"], create=True, clock=clock or ManualClock(NOW), **options)


def values_of(log: klog.Log) -> tuple[bytes | None, ...]:
    return tuple([record.value for record in log.read()])


def content_of(logs: klog.LogManager, loads: Loads[tuple[bytes | None, ...]] | None = None) -> Content:
    """loads: leaves out what was loaded before."""
    return tuple(
        (topic, partition, values_of(logs.log(topic, partition)) if loads is None else loads.of(logs, topic, partition))
        for topic, partitions in sorted(logs.topics().items())
        for partition in partitions
    )


@dataclasses.dataclass
class Partition:
    """The values that were appended, and how many of them append() and flush() have promised."""

    values: list[bytes] = dataclasses.field(default_factory=list)
    acknowledged: int = 0
    durable: int = 0


class Topics:
    """Runs random operations on topics. topics: {name: its partitions}. changing: topics that are being created or
    deleted. growing: {name: number of partitions before the addition that is being made}. gone: deleted topics. stops:
    contents with which a clean-shutdown file may exist."""

    def __init__(self, seed: int, *, deaths: bool = False) -> None:
        self.rng = random.Random(seed)
        self._deaths = deaths
        self.topics: dict[str, list[Partition]] = {}
        self.changing: set[str] = set()
        self.growing: dict[str, int] = {}
        self.gone: set[str] = set()
        self.stops: set[Content] = set()
        self.done: list[str] = []
        self._clock = ManualClock(NOW)
        self._serial = 0

    def run(self, root: Path, files: CrashFiles) -> None:
        for name in ("a", "b"):
            (root / name).mkdir(parents=True)
        files.keep(root)
        for _ in range(3):
            self._live(root, files)

    def _live(self, root: Path, files: CrashFiles) -> None:
        if self._deaths:
            with dying(files, self.rng.randrange(30)):
                abandon(open_both(root, self._clock, files=files))
        logs = open_both(root, self._clock, files=files)
        try:
            self._goes_on_from(content_of(logs))
            for _ in range(9):
                self._act(logs)
            if self._deaths:
                with dying(files, self.rng.randrange(self.rng.choice([20, 80]))):
                    self._act(logs)
                return
            self.done.append(self.rng.choice(["stop", "die"]))
            if self.done[-1] == "stop":
                self.stops.add(content_of(logs))
                logs.close()
                for one in self._partitions():
                    one.durable = one.acknowledged
        finally:
            abandon(logs)

    def _act(self, logs: klog.LogManager) -> None:
        self.done.append(self.rng.choices([*ACTIONS], [weight for weight, _ in ACTIONS.values()])[0])
        ACTIONS[self.done[-1]][1](self, logs)

    def _goes_on_from(self, content: Content) -> None:
        """What a new process finds is on disk from now on."""
        check_found(Found(False, content), self, power=False)
        found: dict[str, list[Partition]] = {}
        for topic, _, values in content:
            one = [value for value in values if value is not None]
            found.setdefault(topic, []).append(Partition(one, len(one), len(one)))
        self.gone |= self.topics.keys() - found.keys()
        self.topics = found
        self.changing.clear()
        self.growing.clear()

    def _partitions(self) -> list[Partition]:
        return [one for partitions in self.topics.values() for one in partitions]

    def _some(self) -> tuple[str, int, Partition] | None:
        if not self.topics:
            return None
        topic = self.rng.choice([*self.topics])
        partition = self.rng.randrange(len(self.topics[topic]))
        return topic, partition, self.topics[topic][partition]

    def create(self, logs: klog.LogManager) -> None:
        self._serial += 1
        name, count = f"t{self._serial}", self.rng.choice([1, 2])
        self.changing.add(name)
        self.topics[name] = [Partition() for _ in range(count)]
        logs.create_topic(name, partitions=count, config=CONFIG)
        self.changing.remove(name)

    def add_partitions(self, logs: klog.LogManager) -> None:
        if not self.topics:
            return
        topic = self.rng.choice([*self.topics])
        partitions = self.topics[topic]
        self.growing[topic] = len(partitions)
        partitions += [Partition() for _ in range(self.rng.choice([1, 2]))]
        logs.add_partitions(topic, len(partitions))
        del self.growing[topic]

    def append(self, logs: klog.LogManager) -> None:
        if (some := self._some()) is None:
            return
        topic, partition, one = some
        for _ in range(self.rng.choice([1, 4])):
            self._serial += 1
            one.values.append(b"%d." % self._serial + self.rng.randbytes(40))
            logs.log(topic, partition).append([(b"k", one.values[-1])])
            one.acknowledged += 1

    def flush(self, logs: klog.LogManager) -> None:
        if (some := self._some()) is not None:
            logs.log(*some[:2]).flush()
            some[2].durable = some[2].acknowledged

    def delete(self, logs: klog.LogManager) -> None:
        if (some := self._some()) is None:
            return
        topic = some[0]
        self.changing.add(topic)
        logs.delete_topic(topic)
        self.changing.remove(topic)
        self.gone.add(topic)
        del self.topics[topic]

    def move(self, logs: klog.LogManager) -> None:
        if (some := self._some()) is not None:
            here = Path(logs.log(*some[:2]).path).parent
            logs.move(*some[:2], here.parent / ("b" if here.name == "a" else "a"))

    def wait(self, logs: klog.LogManager) -> None:
        """Advance the clock, so that files that are marked for deletion are deleted."""
        self._clock.advance(61_000)


ACTIONS: dict[str, tuple[int, Any]] = {
    "create": (3, Topics.create),
    "add partitions": (2, Topics.add_partitions),
    "append": (6, Topics.append),
    "flush": (2, Topics.flush),
    "delete": (1, Topics.delete),
    "move": (3, Topics.move),
    "wait": (1, Topics.wait),
}


@dataclasses.dataclass(frozen=True)
class Found:
    """What klog found. clean: there are clean-shutdown files."""

    clean: bool
    content: Content


class TopicsOpener:
    """Opens the two log.dirs. A full check also appends to each partition, stops, opens again and verifies."""

    def __init__(self) -> None:
        self._loads = Loads(values_of)

    def __call__(self, root: Path, recovery: Policy) -> Found:
        with open_both(root, recovery=recovery) as logs:
            found = Found(logs.clean_shutdown, content_of(logs))
            for topic, partition, _ in found.content:
                logs.log(topic, partition).append([(None, b"after")])
        with open_both(root) as logs:
            assert content_of(logs) == tuple((topic, at, (*values, b"after")) for topic, at, values in found.content)
        for name in ("a", "b"):
            problems = [it for it in klog.verify(root / name).problems if it.kind != "leftover"]
            assert not problems, problems
        return found

    def quick(self, state: State, root: Path, recovery: Policy) -> Found:
        logs = open_both(root, recovery=recovery)
        try:
            return Found(logs.clean_shutdown, content_of(logs, self._loads))
        finally:
            abandon(logs)

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State:
        def work(files: CrashFiles) -> None:
            logs = open_both(root, files=files, recovery=recovery)
            try:
                content_of(logs)
            finally:
                abandon(logs)

        return cut_while(root, rng, 40, work)


def check_found(found: Found, promised: Topics, *, power: bool) -> None:
    shown: dict[str, dict[int, tuple[bytes | None, ...]]] = {}
    for topic, partition, values in found.content:
        shown.setdefault(topic, {})[partition] = values
    assert not shown.keys() & promised.gone, f"{shown.keys() & promised.gone} were deleted, after {promised.done}"
    assert shown.keys() <= promised.topics.keys()
    for topic, partitions in promised.topics.items():
        if topic not in shown:
            least = max(one.durable if power else one.acknowledged for one in partitions)
            assert topic in promised.changing or (power and least == 0), f"{topic} is missing after {promised.done}"
            continue
        sizes = {len(partitions), promised.growing.get(topic, len(partitions))}
        assert len(shown[topic]) in sizes and shown[topic].keys() == set(range(len(shown[topic])))
        for number, one in enumerate(partitions[: len(shown[topic])]):
            values, least = shown[topic][number], one.durable if power else one.acknowledged
            if topic in promised.changing:
                least = 0
            assert list(values) == one.values[: len(values)], f"{topic}-{number} is no prefix after {promised.done}"
            assert len(values) >= least, f"{topic}-{number}: {len(values)} of {least} left after {promised.done}"
    if found.clean:
        assert found.content in promised.stops or not promised.stops


def cut_topics(
    place: Path,
    *,
    seed: int,
    randoms: int,
    stride: int = 1,
    share: int = 1,
    deaths: bool = False,
    rig: type[PowerCuts[Found]] = PowerCuts,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
) -> Tally:
    """Cut the power at every `stride`th operation of the disk. deaths: before that the process may die in any one."""
    topics = Topics(seed, deaths=deaths)
    cuts = rig(
        place,
        TopicsOpener(),
        lambda found, only_died: check_found(found, topics, power=not only_died),
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        share=share,
        opened=opened,
        promised=lambda: (topics.topics, topics.gone, topics.changing, topics.growing),
    )
    return cuts.run(topics.run)
