"""After a power cut klog opens the state, and stops or dies; Kafka's own loader then loads the directory.

Kafka finds the same log start and end, segments, records, producers, epochs and aborted transactions as klog, both
after a clean stop and when it recovers the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klog.errors import CorruptLog
from klog.log.directory import checkpoint
from klog.log.load.loader import Policy
from tests.crash import compaction, life, producing, workload
from tests.crash.life import cut_life
from tests.crash.look import open_logs
from tests.crash.producing import cut_producers
from tests.crash.workload import cut_writer
from tests.interop.kafka import Judge
from tests.interop.loads import Given, Verdict, differences, kafka_loads, klog_verdict
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_states import State
from tests.support.power_cuts import Tally

pytestmark = pytest.mark.java

BATCH = 300  # directories per request


class Takeover:
    """Kafka loads the directory of each state: after a stop, as clean and as unclean, and after a death."""

    def __init__(self, judge: Judge, place: Path, topic: str, config: Mapping[str, Any]) -> None:
        self.loads = 0
        self._judge, self._place, self._topic, self._config = judge, place, topic, config
        self._waiting: list[tuple[str, Given, Verdict]] = []
        self._found: list[str] = []

    def add(self, state: State, _: Path) -> None:
        """Add a crash state that klog can open."""
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
            for clean in (True, False) if ending == "stopped" else (False,):
                self._waiting.append(
                    (f"stop_at={state.stop_at} {state.name}, {ending}, {clean=}", self._given(root, clean), mine)
                )
                root = Path(shutil.copytree(root, self._place / f"{len(self._waiting)}", dirs_exist_ok=True))
            shutil.rmtree(root)
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
        shutil.rmtree(self._place)
        assert not self._found, "\n".join(self._found)


def _forgets_last_epoch(kafka: Verdict, mine: Verdict) -> bool:
    """Kafka drops the last epoch of a log whose records are all deleted, klog keeps it (docs/deviations.md)."""
    last = mine.leader_epochs[-1:]
    emptied = mine.log_start_offset == mine.log_end_offset
    return emptied and [start for _, start in last] == [mine.log_end_offset] and not kafka.leader_epochs


class Workload(NamedTuple):
    """A workload whose crash states Kafka loads; deep: how many loads the deep run has at least."""

    cut: Callable[..., object]
    topic: str
    config: Mapping[str, Any]
    deep: int


def cut_cleaning(place: Path, **how: Any) -> Tally:
    return compaction.cut_cleaning(compaction.cleaning_of(place / "cleaning", "manager"), **how)[0]


WORKLOADS = {
    "producers": Workload(cut_producers, producing.TOPIC, producing.CONFIG, 3000),
    "truncations": Workload(cut_life, life.TOPIC, life.CONFIG, 7000),
    "appends": Workload(partial(cut_writer, durability="os"), workload.TOPIC, workload.CONFIG, 1000),
    "durable appends": Workload(partial(cut_writer, durability="sync"), workload.TOPIC, workload.CONFIG, 1000),
    "cleaning": Workload(cut_cleaning, compaction.TOPIC, compaction.SMALL, 900),
}


def loaded(judge: Judge, place: Path, name: str, **how: int) -> int:
    """How many directories Kafka has loaded. Printed: docs/guarantees.md has the sum."""
    cut, topic, config, _ = WORKLOADS[name]
    takeover = Takeover(judge, place / "takeover", topic, config)
    cut(place / "states", **how, opened=takeover.add)
    takeover.ask()
    print(f"count: {takeover.loads} crash states loaded by Kafka {judge.kafka.version}, of {name}")
    return takeover.loads


@pytest.mark.parametrize("name", WORKLOADS)
def test_kafka_loads_a_sample_of_crash_states(judge: Judge, tmp_path: Path, name: str) -> None:
    assert loaded(judge, tmp_path, name, stride=150, randoms=0) > 15


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_kafka_loads_every_crash_state(judge: Judge, tmp_path: Path, name: str, crash_seed: int) -> None:
    assert loaded(judge, tmp_path, name, stride=1, randoms=4, seed=crash_seed) >= WORKLOADS[name].deep
