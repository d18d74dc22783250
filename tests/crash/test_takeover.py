"""After a power cut klog opens the state, and stops or dies. Then Kafka's own loader loads the directory.

Kafka finds the same log start and end, segments, records, producers, epochs and aborted transactions as klog, both
after a clean stop and when it recovers the log. Kafka also loads the state directly as the cut has left it, before klog
opens it: it finds every record that klog has promised, without a gap.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import klog
from klog.errors import CorruptLog
from klog.log.directory import checkpoint
from klog.log.directory.partition_names import parse_directory_name
from klog.log.options import Policy
from tests.crash import compaction, history, life, producing, topics, workload
from tests.crash.life import cut_life
from tests.crash.opening import open_logs
from tests.crash.producing import cut_producers
from tests.crash.workload import cut_writer
from tests.interop.kafka import KafkaClasses
from tests.interop.loads import Given, Verdict, differences, kafka_loads, klog_verdict
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally

pytestmark = pytest.mark.java

BATCH = 300  # directories per request


Name = tuple[str, int]
"""Topic and partition."""


class Takeover:
    """Lets Kafka load the directory of each partition of a state: after a clean stop, once with and once without the
    clean-shutdown file, and after the death of the process.

    least: the promised log ends of the states that are added next; None: the log ends that klog finds."""

    def __init__(
        self, kafka_classes: KafkaClasses, place: Path, open_: Callable[..., klog.LogManager], config: Mapping[str, Any]
    ) -> None:
        self.loads = 0
        self.raw = 0
        self.least: Mapping[Name, int] | None = None
        self._kafka_classes, self._place, self._open, self._config = kafka_classes, place, open_, config
        self._waiting: list[tuple[str, Given, Verdict]] = []
        self._as_left: list[tuple[str, list[Given], int]] = []
        self._found: list[str] = []
        self._numbers = itertools.count()

    def _copy(self) -> Path:
        return self._place / f"{next(self._numbers)}"

    def add(self, state: State, _: Path) -> None:
        """Add a crash state that klog can open."""
        ends: dict[Name, int] = {}
        for ending in ("stopped", "died"):
            root = state.lay_out(self._copy())
            try:
                mine = self._left_by_klog(root, ending, "strict")
            except CorruptLog:
                assert state.by_sectors
                mine = self._left_by_klog(root, ending, "kafka")
            if ending == "died" and any(map(_forgot_producers, mine.values())):
                mine = self._with_producers_of_the_next_load(root, mine)
            for clean in (True, False) if ending == "stopped" else (False,):
                copy = Path(shutil.copytree(root, self._copy()))
                for path, verdict in mine.items():
                    ends.setdefault(name_of(path), verdict.log_end_offset)
                    where = f"stop_at={state.stop_at} {state.name}, {path}, {ending}, {clean=}"
                    self._waiting.append((where, self._given(copy / path, clean), verdict))
            shutil.rmtree(root)
        self._add_as_left(state, ends if self.least is None else self.least)
        if len(self._waiting) >= BATCH:
            self.ask()

    def _add_as_left(self, state: State, least: Mapping[Name, int]) -> None:
        root, partitions = state.lay_out(self._copy()), dict[Name, list[Path]]()
        for path in state.directories:
            if (name := parse_directory_name(os.path.basename(path))) is not None:
                partitions.setdefault(name, []).append(root / path)
        lost = [name for name, end in least.items() if end and name not in partitions]
        assert not lost, f"{state.name}: no directory of {lost}"
        for name, paths in partitions.items():
            where = f"stop_at={state.stop_at} {state.name}, {name}, as the cut has left it"
            given = [self._given(path, (path.parent / checkpoint.CLEAN_SHUTDOWN).exists()) for path in paths]
            self._as_left.append((where, given, least.get(name, 0)))

    def _left_by_klog(self, root: Path, ending: str, recovery: Policy) -> dict[str, Verdict]:
        """klog's own view of each partition, by its path."""
        logs = self._open(root, recovery=recovery)
        try:
            mine = {}
            for topic, partitions in logs.topics().items():
                for number in partitions:
                    log = logs.log(topic, number)
                    if ending == "died":
                        log.append([(b"k", b"the last word", NOW)])
                    mine[os.path.relpath(log.path, root)] = klog_verdict(log)
            if ending == "stopped":
                logs.close()
            return mine
        finally:
            abandon(logs)

    def _with_producers_of_the_next_load(self, root: Path, mine: dict[str, Verdict]) -> dict[str, Verdict]:
        copy = Path(shutil.copytree(root, self._copy()))
        logs = self._open(copy, recovery="strict")
        try:
            again = {path: klog_verdict(logs.log(*name_of(path))) for path in mine}
        finally:
            abandon(logs)
        return {
            path: replace(
                each,
                producers=again[path].producers,
                first_undecided_offset=again[path].first_undecided_offset,
            )
            for path, each in mine.items()
        }

    def _given(self, path: Path, clean: bool) -> Given:
        def of(name: str) -> int:
            return checkpoint.read_offsets(str(path.parent / name)).get(name_of(str(path)), 0)

        return Given(path, clean, NOW, of(checkpoint.RECOVERY_POINT), of(checkpoint.LOG_START), self._config)

    def ask(self) -> None:
        """Ask Kafka about all waiting directories."""
        verdicts = kafka_loads(self._kafka_classes, [given for _, given, _ in self._waiting])
        for (where, _, mine), verdict in zip(self._waiting, verdicts, strict=True):
            left_out = ("recovery_point", *(("leader_epochs",) if _forgets_last_epoch(verdict, mine) else ()))
            self._found += [f"{where}: {text}" for text in differences(verdict, mine, leave_out=left_out)]
        self.loads += len(self._waiting)
        self._waiting.clear()
        raw = iter(kafka_loads(self._kafka_classes, [given for _, some, _ in self._as_left for given in some]))
        for where, given, least in self._as_left:
            found = [next(raw) for _ in given]
            problems = [verdict.error for verdict in found if verdict.error is not None]
            if (end := max(verdict.log_end_offset for verdict in found)) < least:
                problems.append(f"Kafka's log ends at {end}, klog has promised {least}")
            problems += [f"Kafka cannot read {it.read_error}" for it in found if it.read_error is not None]
            self._found += [f"{where}: {problem}" for problem in problems]
            self.raw += len(found)
        self._as_left.clear()
        # There is none without a state since the last question, and Kafka writes leader epochs after a load has returned.
        shutil.rmtree(self._place, ignore_errors=True)
        assert not self._found, "\n".join(self._found)


def name_of(path: str) -> Name:
    name = parse_directory_name(os.path.basename(path))
    assert name is not None
    return name


def _forgets_last_epoch(kafka: Verdict, mine: Verdict) -> bool:
    """Kafka drops the last epoch of a log whose records are all deleted, klog keeps it (docs/deviations.md)."""
    last = mine.leader_epochs[-1:]
    emptied = mine.log_start_offset == mine.log_end_offset
    return emptied and [start for _, start in last] == [mine.log_end_offset] and not kafka.leader_epochs


def _forgot_producers(mine: Verdict) -> bool:
    """The load of a log whose records are all deleted drops their producers, Kafka's too. After an append and a crash
    the next load finds them again, in the records below the log start, if these share its segment."""
    return mine.log_start_offset + 1 == mine.log_end_offset and not mine.producers


def least_of_log(promised: Any, *, only_died: bool) -> int | None:
    """The promised log end. None for a workload that promises every record that klog finds."""
    if promised == "":
        return None
    if isinstance(promised, tuple):  # of producers: acknowledged, durable, stops
        return int(promised[not only_died])
    legal = promised if isinstance(promised, list) else [promised]
    return min(one.acknowledged if only_died else one.durable for one in legal)


def least_of_topics(promised: Any, *, only_died: bool) -> Mapping[Name, int]:
    all_topics, _, changing, _ = promised
    return {
        (topic, number): 0 if topic in changing else one.acknowledged if only_died else one.durable
        for topic, partitions in all_topics.items()
        for number, one in enumerate(partitions)
    }


class Workload(NamedTuple):
    """A workload whose crash states Kafka loads. topic: None if there are several. config: the config of the topics, or
    a function that returns it for a seed. deep: the least number of loads in the deep run, which cuts the power at every
    `stride`th operation: 20,000 loads in all."""

    cut: Callable[..., object]
    topic: str | None
    config: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    deep: int
    stride: int = 3

    def least(self, promised: Any, *, only_died: bool) -> Mapping[Name, int] | None:
        """The promised log ends. None: those that klog finds."""
        if self.topic is None:
            return least_of_topics(promised, only_died=only_died)
        end = least_of_log(promised, only_died=only_died)
        return None if end is None else {(self.topic, 0): end}


def cut_cleaning(place: Path, **how: Any) -> Tally:
    return compaction.cut_cleaning(compaction.cleaning_of(place / "cleaning", "manager"), **how)[0]


def cut_history(place: Path, *, seed: int = 0, **how: Any) -> Tally:
    return history.cut_history(place, seed=seed, **how)


def cut_topics(place: Path, *, seed: int = 0, **how: Any) -> Tally:
    place.mkdir()
    return topics.cut_topics(place, seed=seed, **how)


def config_of_history(seed: int) -> Mapping[str, Any]:
    return {key: value for key, value in history.History(seed).config.items() if not key.startswith("klog.")}


WORKLOADS = {
    "history": Workload(cut_history, history.TOPIC, config_of_history, 230),
    "producers": Workload(cut_producers, producing.TOPIC, producing.CONFIG, 1000),
    "truncations": Workload(cut_life, life.TOPIC, life.CONFIG, 2300),
    "appends": Workload(partial(cut_writer, durability="os"), workload.TOPIC, workload.CONFIG, 330),
    "durable appends": Workload(partial(cut_writer, durability="sync"), workload.TOPIC, workload.CONFIG, 330),
    "cleaning": Workload(cut_cleaning, compaction.TOPIC, compaction.SMALL, 300),
    "topics": Workload(cut_topics, None, topics.CONFIG, 330, stride=12),  # a state has four directories
}


def loaded(kafka_classes: KafkaClasses, place: Path, name: str, **how: int) -> int:
    """Let Kafka load the crash states. Returns how many directories it has loaded, and prints the numbers that
    docs/guarantees.md adds up."""
    workload = WORKLOADS[name]
    config = workload.config(how.get("seed", 0)) if callable(workload.config) else workload.config
    takeover = Takeover(kafka_classes, place / "takeover", open_logs if workload.topic else topics.open_both, config)

    class Rig(PowerCuts[Any]):
        def check(self, state: State, rng: random.Random) -> None:
            takeover.least = workload.least(self.promised(), only_died=state.name == "all")
            super().check(state, rng)

    workload.cut(place / "states", **how, opened=takeover.add, rig=Rig)
    takeover.ask()
    print(f"count: {takeover.loads} crash states loaded by Kafka {kafka_classes.kafka.version} after klog, of {name}")
    print(
        f"count: {takeover.raw} crash states loaded by Kafka {kafka_classes.kafka.version} as the cut has left them, of {name}"
    )
    assert takeover.raw > takeover.loads // 5
    return takeover.loads


@pytest.mark.parametrize("name", WORKLOADS)
def test_kafka_loads_a_sample_of_crash_states(kafka_classes: KafkaClasses, tmp_path: Path, name: str) -> None:
    assert loaded(kafka_classes, tmp_path, name, stride=150, randoms=0) > 15


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_kafka_loads_every_crash_state(kafka_classes: KafkaClasses, tmp_path: Path, name: str, crash_seed: int) -> None:
    workload = WORKLOADS[name]
    assert loaded(kafka_classes, tmp_path, name, stride=workload.stride, randoms=4, seed=crash_seed) >= workload.deep
