"""The result of a trial: one Result for each policy of a contest, with medians over the rounds, and ratios.

A ratio compares a policy with the contest's first one in the same round, so with the same noise. It is the median of
rate / rate of the first; above 1 is better, also for times. ratio_min is the ratio of the worst round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from klog.values import asdict, dataclass, field


@dataclass(frozen=True)
class Advice:
    """One setting, with its reason. setting: `key=value` of a topic, durability="...", or an action."""

    setting: str
    reason: str


@dataclass(frozen=True)
class Result:
    """One policy of one contest. way: the policy's name. settings: its topic-level keys. figures: by name, which ends
    with the unit; the main figure comes first. rounds: their number."""

    contest: str
    way: str
    settings: Mapping[str, str]
    figures: Mapping[str, float]
    ratio: float
    ratio_min: float
    rounds: int

    @property
    def value(self) -> float:
        """The main figure."""
        return next(iter(self.figures.values()))

    @property
    def unit(self) -> str:
        """The name of the main figure."""
        return next(iter(self.figures))


@dataclass(frozen=True)
class Report:
    """A whole trial. notes: what could not be measured, and why."""

    directory: str
    results: Sequence[Result]
    bytes_written: int
    seconds: float
    notes: Sequence[str] = ()
    advice: Sequence[Advice] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return asdict(self)


def summed_up(
    contest: str,
    rounds: Sequence[Mapping[str, Mapping[str, float]]],
    settings: Mapping[str, Mapping[str, str]],
    *,
    less_is_better: bool = False,
) -> list[Result]:
    """Return the results of a contest from its rounds, {policy: {figure: value}} each. The others are compared with
    the first policy. A figure whose name begins with `max` is the largest of all rounds, any other the median."""
    first = next(iter(rounds[0]))
    results = []
    for policy in rounds[0]:
        mine = [one[policy] for one in rounds if policy in one]
        figures = {name: (max if name.startswith("max") else median)([one[name] for one in mine]) for name in mine[0]}
        pairs = [(_value(one[policy]), _value(one[first])) for one in rounds if policy in one]
        ratios = [base / value if less_is_better else value / base for value, base in pairs]
        results.append(
            Result(contest, policy, dict(settings.get(policy, {})), figures, median(ratios), min(ratios), len(mine))
        )
    return results


def _value(figures: Mapping[str, float]) -> float:
    return max(next(iter(figures.values())), 1e-12)
