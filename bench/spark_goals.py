"""The goals of bench.spark: klog's contestants as a multiple of a peer's speed or processor time in the same test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FULL, COUNT, WRITE = "all columns to noop", "count()", "write keys and values"
NARROW = ("sum(length(value))", "max(offset) by partition")
SMALL_TRIGGER, LARGE_TRIGGER = "trigger of 1,000 rows", "trigger of 200,000 rows"
SOURCE, SCAN, TABLE, BATCHES = 'format("klog")', "klog.spark.scan", "klog.spark.table", "view=batches"
CONNECTOR, PARQUET = "Kafka connector", "Parquet"
STREAM = "rows ready, data source"
READY = {SOURCE: STREAM, SCAN: "rows ready, mapInArrow"}


@dataclass(frozen=True)
class Goal:
    """A contestant's speed should be at least `ratio` times the peer's; with is_cost, its processor time at most
    that."""

    test: str
    contestant: str
    peer: str
    ratio: float
    is_cost: bool = False

    def __str__(self) -> str:
        return f"µs ≤ {self.ratio:.3g} × {self.peer}" if self.is_cost else f"≥ {self.ratio:.3g} × {self.peer}"


GOALS = (
    Goal(FULL, SOURCE, CONNECTOR, 2.5),
    Goal(FULL, SOURCE, PARQUET, 0.7),
    Goal(FULL, SCAN, CONNECTOR, 4),
    *(Goal(test, contestant, CONNECTOR, 4) for test in NARROW for contestant in (SOURCE, SCAN)),
    Goal(COUNT, SOURCE, CONNECTOR, 5),
    Goal(COUNT, BATCHES, CONNECTOR, 50),
    *(
        Goal(test, contestant, READY[contestant], 1.15, is_cost=True)
        for test in (FULL, *NARROW, COUNT)
        for contestant in READY
    ),
    *(Goal(test, TABLE, PARQUET, 0.9) for test in (*NARROW, COUNT)),
    Goal(WRITE, SOURCE, CONNECTOR, 3),
    Goal(WRITE, SOURCE, PARQUET, 0.8),
    Goal(SMALL_TRIGGER, SOURCE, CONNECTOR, 1 / 0.8),
    Goal(LARGE_TRIGGER, SOURCE, CONNECTOR, 1 / 0.7),
)


@dataclass(frozen=True)
class Verdict:
    """A goal, and the ratio of a run."""

    goal: Goal
    reached: float

    @property
    def met(self) -> bool:
        if self.goal.is_cost:
            return self.reached <= self.goal.ratio
        return self.reached >= self.goal.ratio

    def __str__(self) -> str:
        return f"{self.goal.test}, {self.goal.contestant}: {self.reached:.2f}; the goal is {self.goal}"


def verdicts(rows: list[Mapping[str, Any]]) -> Iterator[Verdict]:
    """Yield a verdict for each goal whose contestant and peer have run."""
    found = {(row["test"], row["contestant"]): row for row in rows}
    for goal in GOALS:
        mine, peer = found.get((goal.test, goal.contestant)), found.get((goal.test, goal.peer))
        if mine is None or peer is None:
            continue
        of_mine, of_peer = ((row["processor"] if goal.is_cost else row["seconds"]["wall"]) for row in (mine, peer))
        if of_mine > 0 and of_peer > 0:  # a tiny run may take less than a tick of the clock
            yield Verdict(goal, of_mine / of_peer if goal.is_cost else of_peer / of_mine)
