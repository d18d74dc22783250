"""Run contests and print a table: python -m bench.compare [NAME ...] [--tiny] [--rounds N] [--save FILE]

NAME picks the contests whose name contains it. --tiny runs everything small and quickly, to see that it still works:
its figures mean nothing. --save writes the figures with machine and commit, for bench/baselines.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import checksum_contests, codec_contests, compression_contests, log_contests, thread_contests
from bench.contest import ROUNDS, Factory, Result, race

FACTORIES: dict[str, Factory] = {
    **codec_contests.FACTORIES,
    **checksum_contests.FACTORIES,
    **compression_contests.FACTORIES,
    **log_contests.FACTORIES,
    **thread_contests.FACTORIES,
}
_HEAD = ("contest", "contestant", "median", "best", "Mrec/s", "GB/s", "x peer")


def rows(result: Result) -> Iterable[tuple[str, ...]]:
    contest = result.contest
    for place, score in enumerate(result.scores):
        yield (
            contest.name if place == 0 else "",
            score.contestant,
            _duration(score.median),
            _duration(score.best),
            f"{contest.records / score.median / 1e6:.2f}" if contest.records else "-",
            f"{contest.bytes / score.median / 1e9:.2f}" if contest.bytes else "-",
            f"{result.ratio(score):.2f}" if place < len(result.scores) - 1 else "peer",
        )


def as_dict(result: Result) -> dict[str, Any]:
    return {
        "contest": result.contest.name,
        "records": result.contest.records,
        "bytes": result.contest.bytes,
        "void_rounds": result.void_rounds,
        "contestants": [
            {"name": score.contestant, "seconds": score.seconds, "median": score.median, "ratio": result.ratio(score)}
            for score in result.scores
        ],
    }


def machine() -> dict[str, Any]:
    """What the absolute figures belong to."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="klog against its peers, in one run")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only contests whose name contains NAME")
    parser.add_argument("--tiny", action="store_true", help="a few records, one round: does it still work?")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    asked = parser.parse_args(arguments)
    chosen = [name for name in FACTORIES if not asked.names or any(part in name for part in asked.names)]
    if not chosen:
        parser.error(f"no contest of that name; there are: {', '.join(FACTORIES)}")
    results = []
    print(_line(_HEAD))
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
            contest = FACTORIES[name](asked.tiny, Path(folder))
            try:
                result = race(contest, rounds=1, turn_seconds=0) if asked.tiny else race(contest, rounds=asked.rounds)
            finally:
                contest.close()
        results.append(result)
        for row in rows(result):
            print(_line(row), flush=True)
    void = sum(result.void_rounds for result in results)
    print(
        f"\n{asked.rounds if not asked.tiny else 1} rounds each; {void} void rounds (steal or run-queue wait) run again"
    )
    if asked.save:
        figures = {"machine": machine(), "results": [as_dict(result) for result in results]}
        asked.save.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _line(row: tuple[str, ...]) -> str:
    name, contestant, *figures = row
    return f"{name:<18} {contestant:<34} {' '.join(f'{figure:>10}' for figure in figures)}"


def _duration(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


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
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
