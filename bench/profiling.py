"""Profile a contest: python -m bench.profiling CONTEST [--contestant NAME] [--seconds N] [--out FOLDER]

Runs one contestant (by default klog's first one) again and again while Linux perf samples the process, and writes a
flame graph to FOLDER/CONTEST.svg. perf starts after the check and the first run, so the graph contains neither. Prints
the frames with most samples. `make profile CONTEST=append` makes the build that this needs: see docs/profiling.md.

If perf has no hardware counters (in a virtual machine) it samples by the clock.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.compare import FACTORIES
from bench.contest import Contest, Contestant, Unavailable
from tools import flamegraph

_HERTZ = 499
_STACK_BYTES = 16 << 10


def record(contestant: Contestant, seconds: float, data: Path) -> None:
    """Run a contestant under perf for `seconds`. perf unwinds by DWARF, because many Pythons keep no frame pointers."""
    once(contestant)
    if shutil.which("perf") is None:
        raise Unavailable("perf (linux-perf)")
    command = ["perf", "record", "--quiet", "--freq", str(_HERTZ), "--call-graph", f"dwarf,{_STACK_BYTES}"]
    command += ["--pid", str(os.getpid()), "--output", str(data), "--", "sleep", str(seconds)]
    with subprocess.Popen(command) as perf:
        while perf.poll() is None:
            once(contestant)
    if perf.returncode:
        raise Unavailable(
            f"perf may not record here (exit code {perf.returncode}); see /proc/sys/kernel/perf_event_paranoid"
        )


def once(contestant: Contestant) -> None:
    if contestant.before is not None:
        contestant.before()
    contestant.run()


def stacks(data: Path) -> list[flamegraph.Stack]:
    script = ["perf", "script", "--input", str(data), "--fields", "comm,ip,sym,srcline", "--full-source-path"]
    printed = subprocess.run(script, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return [stack for stack in flamegraph.stacks(printed.splitlines()) if stack[0] != "sleep"]


def chosen(contest: Contest, name: str | None) -> Contestant:
    for contestant in contest.contestants:
        if name is None or contestant.name == name:
            return contestant
    sys.exit(
        f"no contestant {name!r} in {contest.name}; there are: {', '.join(one.name for one in contest.contestants)}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description="a flame graph of one contestant")
    parser.add_argument(
        "contest", help="a name that `python -m bench.compare` knows, or the only one that contains this"
    )
    parser.add_argument("--contestant", metavar="NAME", help="klog's first one if not given")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("build/profile"), metavar="FOLDER")
    parser.add_argument("--tiny", action="store_true", help="a few records: tests that it still works")
    asked = parser.parse_args(arguments)
    names = [name for name in FACTORIES if name == asked.contest] or [
        name for name in FACTORIES if asked.contest in name
    ]
    if len(names) != 1:
        parser.error(f"which contest? {', '.join(names or FACTORIES)}")
    try:
        picture(names[0], asked)
    except Unavailable as missing:
        print(f"{names[0]}: needs: {missing}")
        return 1
    return 0


def picture(name: str, asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="klog-profile-") as folder:
        data = Path(folder, "perf.data")
        contest = FACTORIES[name](asked.tiny, Path(folder))
        try:
            contest.check()
            contestant = chosen(contest, asked.contestant)
            record(contestant, asked.seconds, data)
        finally:
            contest.close()
        found = stacks(data)
    title = f"{contest.name}: {contestant.name}"
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.svg"
    file.write_text(flamegraph.svg(flamegraph.tree(found), title))
    print(f"{title}: {len(found)} samples in {file}\n")
    for frame, samples in flamegraph.own_samples(found)[:15]:
        print(f"{100 * samples / max(1, len(found)):5.1f}%  {frame}")


if __name__ == "__main__":
    sys.exit(main())
