"""After a power cut klog opens the state, and stops or dies; Kafka's own loader then loads the directory.

Kafka finds the same log start and end, segments, records, producers, epochs and aborted transactions as klog, both
after a clean stop and when it recovers the log. It also loads the state as the cut has left it, which klog has not opened:
it has every record that klog has promised, without a gap.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klog.errors import CorruptLog
from klog.log.directory import checkpoint
from klog.log.options import Policy
from tests.crash import compaction, history, life, producing, workload
from tests.crash.life import cut_life
from tests.crash.look import open_logs
from tests.crash.producing import cut_producers
from tests.crash.workload import cut_writer
from tests.interop.kafka import Judge
from tests.interop.loads import Given, Verdict, differences, kafka_loads, klog_verdict
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts, Tally

pytestmark = pytest.mark.java

BATCH = 300  # directories per request


class Takeover:
    """Kafka loads the directory of each state: after a stop, as clean and as unclean, and after a death."""

    def __init__(self, judge: Judge, place: Path, topic: str, config: Mapping[str, Any]) -> None:
        self.loads = 0
        self.raw = 0
        self.least: int | None = 0  # the promised log end of the states to come; None: what klog finds
        self._judge, self._place, self._topic, self._config = judge, place, topic, config
        self._waiting: list[tuple[str, Given, Verdict]] = []
        self._as_left: list[tuple[str, Given, int]] = []
        self._found: list[str] = []

    def add(self, state: State, _: Path) -> None:
        """Add a crash state that klog can open."""
        least = self.least
        for ending in ("stopped", "died"):
            root = state.lay_out(self._place / f"{len(self._waiting)}")
            try:
                mine = self._left_by_klog(root, ending, "strict")
            except CorruptLog:
                assert state.by_sectors
                mine = self._left_by_klog(root, ending, "kafka")
            if mine is None:
                shutil.rmtree(root)
                continue
            if least is None:
                least = mine.log_end_offset
            for clean in (True, False) if ending == "stopped" else (False,):
                self._waiting.append(
                    (f"stop_at={state.stop_at} {state.name}, {ending}, {clean=}", self._given(root, clean), mine)
                )
                root = Path(shutil.copytree(root, self._place / f"{len(self._waiting)}", dirs_exist_ok=True))
            shutil.rmtree(root)
        root = state.lay_out(self._place / f"as left {len(self._as_left)}")
        if (root / f"{self._topic}-0").exists():
            clean = (root / checkpoint.CLEAN_SHUTDOWN).exists()
            where = f"stop_at={state.stop_at} {state.name}, as the cut has left it"
            self._as_left.append((where, self._given(root, clean), least or 0))
        else:
            assert not least, f"{state.name}: no partition"
        if len(self._waiting) >= BATCH:
            self.ask()

    def _left_by_klog(self, root: Path, ending: str, recovery: Policy) -> Verdict | None:
        """klog's own view of the directory; None without a topic."""
        logs = open_logs(root, recovery=recovery)
        try:
            if self._topic not in logs.topics():
                return None
            log = logs.log(self._topic)
            if ending == "died":
                log.append([(b"k", b"the last word", NOW)])
            mine = klog_verdict(log)
            if ending == "stopped":
                logs.close()
            return mine
        finally:
            abandon(logs)

    def _given(self, root: Path, clean: bool) -> Given:
        def of(name: str) -> int:
            return checkpoint.read_offsets(str(root / name)).get((self._topic, 0), 0)

        return Given(
            root / f"{self._topic}-0",
            clean,
            NOW,
            of(checkpoint.RECOVERY_POINT),
            of(checkpoint.LOG_START),
            self._config,
        )

    def ask(self) -> None:
        """Ask Kafka about all waiting directories."""
        verdicts = kafka_loads(self._judge, [given for _, given, _ in self._waiting])
        for (where, _, mine), verdict in zip(self._waiting, verdicts, strict=True):
            left_out = ("recovery_point", *(("leader_epochs",) if _forgets_last_epoch(verdict, mine) else ()))
            self._found += [f"{where}: {text}" for text in differences(verdict, mine, leave_out=left_out)]
        self.loads += len(self._waiting)
        self._waiting.clear()
        for (where, _, least), verdict in zip(
            self._as_left, kafka_loads(self._judge, [given for _, given, _ in self._as_left]), strict=True
        ):
            problems = [verdict.error] if verdict.error is not None else []
            if verdict.log_end_offset < least:
                problems.append(f"Kafka's log ends at {verdict.log_end_offset}, klog has promised {least}")
            if verdict.read_error is not None:
                problems.append(f"Kafka cannot read {verdict.read_error}")
            self._found += [f"{where}: {problem}" for problem in problems]
        self.raw += len(self._as_left)
        self._as_left.clear()
        shutil.rmtree(self._place)
        assert not self._found, "\n".join(self._found)


def _forgets_last_epoch(kafka: Verdict, mine: Verdict) -> bool:
    """Kafka drops the last epoch of a log whose records are all deleted, klog keeps it (docs/deviations.md)."""
    last = mine.leader_epochs[-1:]
    emptied = mine.log_start_offset == mine.log_end_offset
    return emptied and [start for _, start in last] == [mine.log_end_offset] and not kafka.leader_epochs


class Workload(NamedTuple):
    """A workload whose crash states Kafka loads; config: of the topic, or a function of the seed; deep: how many loads the
    deep run has at least."""

    cut: Callable[..., object]
    topic: str
    config: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    deep: int


def cut_cleaning(place: Path, **how: Any) -> Tally:
    return compaction.cut_cleaning(compaction.cleaning_of(place / "cleaning", "manager"), **how)[0]


def cut_history(place: Path, *, seed: int = 0, **how: Any) -> Tally:
    return history.cut_history(place, seed=seed, **how)


def config_of_history(seed: int) -> Mapping[str, Any]:
    return {key: value for key, value in history.History(seed).config.items() if not key.startswith("klog.")}


WORKLOADS = {
    "history": Workload(cut_history, history.TOPIC, config_of_history, 1000),
    "producers": Workload(cut_producers, producing.TOPIC, producing.CONFIG, 3000),
    "truncations": Workload(cut_life, life.TOPIC, life.CONFIG, 7000),
    "appends": Workload(partial(cut_writer, durability="os"), workload.TOPIC, workload.CONFIG, 1000),
    "durable appends": Workload(partial(cut_writer, durability="sync"), workload.TOPIC, workload.CONFIG, 1000),
    "cleaning": Workload(cut_cleaning, compaction.TOPIC, compaction.SMALL, 900),
}


def least_of(promised: Any, *, only_died: bool) -> int | None:
    """The promised log end; None for a workload that promises all that is there."""
    if promised == "":
        return None
    if isinstance(promised, tuple):  # of producers: acknowledged, durable, stops
        return int(promised[not only_died])
    legal = promised if isinstance(promised, list) else [promised]
    return min(one.acknowledged if only_died else one.durable for one in legal)


def loaded(judge: Judge, place: Path, name: str, **how: int) -> int:
    """How many directories Kafka has loaded. Printed: docs/guarantees.md has the sum."""
    cut, topic, config, _ = WORKLOADS[name]
    takeover = Takeover(judge, place / "takeover", topic, config(how.get("seed", 0)) if callable(config) else config)

    class Rig(PowerCuts[Any]):
        def check(self, state: State, rng: random.Random) -> None:
            takeover.least = least_of(self.promised(), only_died=state.name == "all")
            super().check(state, rng)

    cut(place / "states", **how, opened=takeover.add, rig=Rig)
    takeover.ask()
    print(f"count: {takeover.loads} crash states loaded by Kafka {judge.kafka.version} after klog, of {name}")
    print(
        f"count: {takeover.raw} crash states loaded by Kafka {judge.kafka.version} as the cut has left them, of {name}"
    )
    return takeover.loads


@pytest.mark.parametrize("name", WORKLOADS)
def test_kafka_loads_a_sample_of_crash_states(judge: Judge, tmp_path: Path, name: str) -> None:
    assert loaded(judge, tmp_path, name, stride=150, randoms=0) > 15


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_kafka_loads_every_crash_state(judge: Judge, tmp_path: Path, name: str, crash_seed: int) -> None:
    assert loaded(judge, tmp_path, name, stride=1, randoms=4, seed=crash_seed) >= WORKLOADS[name].deep
