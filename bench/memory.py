"""The cost of open partitions and their segments: python -m bench.memory [--partitions N] [--segments N]

    a partition   resident bytes, descriptors, maps and blocks on disk of one more partition that is open for writing,
                  before its first append and after it
    a segment     resident bytes of one more closed segment, as opened and after all were read

Each is measured in its own process and divided by their number. Results are printed; there is no peer and no goal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import klog
from bench.many_segments import write_segments

Figures = dict[str, float]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _now() -> Figures:
    maps = Path("/proc/self/maps").read_text().count("\n")
    return {"resident bytes": resident(), "descriptors": len(os.listdir("/proc/self/fd")), "maps": maps}


def _blocks(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _per(count: int, now: Figures, before: Figures, **more: float) -> Figures:
    return {**{name: (now[name] - before[name]) / count for name in now}, **more}


def partitions(folder: Path, count: int) -> dict[str, Figures]:
    """Return the cost of one more partition."""
    with klog.open(folder, create=True) as logs:
        logs.create_topic("t", partitions=count, config={"retention.ms": -1})
        for log in logs.logs():
            log.append([(b"key", b"value")])
    with klog.open(folder) as logs:
        before = _now()
        opened = list(logs.logs())
        costs = {"a partition, opened": _per(count, _now(), before, **{"bytes on disk": _blocks(folder) / count})}
        for log in opened:
            log.append([(b"key", b"value")])
        name = "a partition, after an append"
        costs[name] = _per(count, _now(), before, **{"bytes on disk": _blocks(folder) / count})
    return costs


def segments(folder: Path, count: int) -> dict[str, Figures]:
    """Return the cost of one more closed segment."""
    write_segments(folder / "t-0", count)
    open_log = klog.Log.open  # loads its modules now, so that they are not measured
    before = _now()
    with open_log(folder / "t-0", config={"retention.ms": -1}, clean_shutdown=True) as log:
        costs = {"a segment, opened": _per(count, _now(), before)}
        assert sum(1 for _ in log.read()) == count
        costs["a segment, after it was read"] = _per(count, _now(), before)
    return costs


_PARTS: dict[str, Callable[[Path, int], dict[str, Figures]]] = {"partitions": partitions, "segments": segments}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory", description="the cost of open partitions and segments"
    )
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--alone", choices=_PARTS, help="one of them, in this process, as JSON")
    asked = parser.parse_args(arguments)
    if asked.alone:
        with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
            print(json.dumps(_PARTS[asked.alone](Path(folder), getattr(asked, asked.alone))))
        return 0
    for part in _PARTS:
        command = [sys.executable, "-m", "bench.memory", "--alone", part, f"--{part}", str(getattr(asked, part))]
        costs = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for what, figures in json.loads(costs).items():
            print(f"{what:<30}" + ", ".join(f"{value:,.2f} {name}" for name, value in figures.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
