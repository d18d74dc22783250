"""The result of a run: a dict that is stored as JSON, and the lines of tables and plots.

    figures  := {machine, rounds, results: [result], skipped: {contest: what it needs}}
    result   := {contest, records, bytes, void_rounds, limit: {name, median} | null, contestants: [klog..., peer]}

All tables and plots are made from these figures, so they can be made again without a run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contest import Result

Figures = dict[str, Any]


def save(run: Figures, path: Path | None) -> None:
    """Store the figures of a run as JSON, unless `path` is None."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class Line:
    """One of klog's contestants with its peer and its limit. Rates are of records; of bytes if there are no records."""

    contest: str
    contestant: str
    rate: str
    peer: str
    peer_rate: str
    ratio: float
    limit: str
    limit_rate: str
    fraction: float | None
    goal: float | None
    disturbed: bool  # as many rounds were void as were requested: later rounds counted even if disturbed

    @property
    def met(self) -> bool | None:
        """Whether the printed ratio reaches the goal; None without a goal."""
        return None if self.goal is None else round(self.ratio, 2) >= self.goal


def figures(results: Iterable[Result], rounds: int, skipped: dict[str, str]) -> Figures:
    return {
        "machine": machine(),
        "rounds": rounds,
        "results": [_as_dict(result) for result in results],
        "skipped": skipped,
    }


def lines(run: Figures) -> Iterator[Line]:
    """Yield a line for each of klog's contestants, contest by contest."""
    for result in run["results"]:
        *contestants, peer = result["contestants"]
        limit = result["limit"]
        for each in contestants:
            yield Line(
                result["contest"],
                each["name"],
                _rate(result, each["median"]),
                peer["name"],
                _rate(result, peer["median"]),
                each["ratio"],
                limit["name"] if limit else "",
                _rate(result, limit["median"]) if limit else "",
                limit["median"] / each["median"] if limit else None,
                each["goal"],
                result["void_rounds"] >= run["rounds"],
            )


def machine() -> dict[str, Any]:
    """Return the machine and the commit of the figures."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _as_dict(result: Result) -> dict[str, Any]:
    contest = result.contest
    return {
        "contest": contest.name,
        "records": contest.records,
        "bytes": contest.bytes,
        "void_rounds": result.void_rounds,
        "limit": {"name": result.limit.contestant, "median": result.limit.median} if result.limit else None,
        "contestants": [
            {
                "name": score.contestant,
                "seconds": score.seconds,
                "median": score.median,
                "ratio": result.ratio(score),
                "goal": contestant.goal,
            }
            for contestant, score in zip(contest.contestants, result.scores, strict=True)
        ],
    }


def _rate(result: dict[str, Any], seconds: float) -> str:
    if result["records"]:
        return f"{result['records'] / seconds / 1e6:.3g} Mrec/s"
    return f"{result['bytes'] / seconds / 1e9:.3g} GB/s"


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
