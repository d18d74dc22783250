"""Gives the C targets many inputs: `python -m tests.fuzz.long --inputs 1000000000 --file FILE`.

Each turn is one process of libFuzzer, which calls its target in a loop, for --turn inputs; the target with the fewest
inputs has the next turn. Inputs are those that libFuzzer reports, and a turn with fewer than it was given fails the
run. New inputs of the corpus are kept in build/fuzz/corpus, which every later run reads, too.

The programs have no sanitizers: a claim that does not hold, or a crash, ends a turn, but a read past the end may not.
So after its last turn each target reads its whole corpus once more, with sanitizers. --sanitize uses them in each turn.

The run may be stopped (Ctrl-C, SIGTERM): the same command goes on where FILE ends, and only turns under way are lost.
A finding ends it with exit status 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import IO, Any

from klog.cli.output import progress_bar
from klog.progress import Event
from tests.fuzz import build

TURN = 1_000_000
_QUICKER = ("-entropic=0",)
"""The weights of inputs by rare features take a quarter of the time of a short target."""
_SHORTER = {"varint": ("-max_len=256",)}
"""Where each byte of an input takes a comparison that libFuzzer traces."""
_POLL_SECONDS = 0.05
_STOPPED = 130


@dataclasses.dataclass
class Count:
    """What a target has had. cpu: in seconds, of its processes. edges, features: the most that a turn reached."""

    inputs: int = 0
    turns: int = 0
    cpu: float = 0.0
    edges: int = 0
    features: int = 0
    crashes: int = 0


class Finding(Exception):
    """A turn ended with a crash, or had another number of inputs than it reports."""


class Run:
    """The counts of some targets, stored in a file after each turn."""

    def __init__(self, names: Iterable[str], file: Path | None) -> None:
        self._file = file
        stored = json.loads(file.read_text()) if file is not None and file.exists() else {}
        self.targets = {name: Count(**stored.get(name, {})) for name in names}
        self._others = {name: counts for name, counts in stored.items() if name not in self.targets}

    @property
    def inputs(self) -> int:
        return sum(each.inputs for each in self.targets.values())

    def store(self) -> None:
        if self._file is not None:
            unfinished = self._file.with_name(f"{self._file.name}.tmp")
            unfinished.write_text(json.dumps({**self._others, **self.figures()}, indent=1) + "\n")
            unfinished.replace(self._file)

    def figures(self) -> dict[str, dict[str, Any]]:
        return {name: dataclasses.asdict(count) for name, count in self.targets.items()}

    def add(self, name: str, turn: Turn) -> None:
        """Count a turn that has ended. Raises Finding."""
        count, output = self.targets[name], turn.output()
        seen = build.figures(output)
        executed = seen.get("number_of_executed_units", 0)
        count.inputs += executed
        count.turns += 1
        count.cpu += turn.cpu
        count.edges = max(count.edges, seen.get("edges", 0))
        count.features = max(count.features, seen.get("features", 0))
        if turn.status != 0:
            count.crashes += 1
        self.store()
        if turn.status != 0:
            raise Finding(f"{name}: FOUND SOMETHING\n{output[-6000:]}\n{_again(name, turn, output)}")
        # The line that libFuzzer prints at the end of its loop, and the statistics after it.
        done = re.findall(r"^#(\d+)\s+DONE", output, re.MULTILINE)
        if done != [str(executed)] or executed < turn.inputs:
            raise Finding(
                f"{name}: {turn.inputs} inputs asked, {executed} counted, {done} at the end\n{output[-2000:]}"
            )

    def table(self) -> str:
        lines = [
            f"| {'target':<8} | {'inputs':>13} | {'CPU s':>7} | {'inputs per CPU-s':>16} | edges | features | crashes |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for name, each in self.targets.items():
            rate = each.inputs / max(each.cpu, 1e-9)
            lines.append(
                f"| {name:<8} | {each.inputs:>13,} | {each.cpu:>7,.0f} | {rate:>16,.0f} | {each.edges:>5,} "
                f"| {each.features:>8,} | {each.crashes:>7} |"
            )
        return "\n".join(lines)


class Turn:
    """A process of libFuzzer. status, cpu: when ended() has returned True."""

    def __init__(self, program: Path, name: str, inputs: int, seed: int) -> None:
        self.inputs = inputs
        self.program = program
        self.status, self.cpu = -1, 0.0
        self._output: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            build.command([str(program)], name, f"-runs={inputs}", f"-seed={seed}", *_QUICKER, *_SHORTER.get(name, ())),
            cwd=build.ROOT,
            env=build.environment(),
            stdout=subprocess.DEVNULL,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C goes to this run alone
        )

    def ended(self) -> bool:
        found, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if found == 0:
            return False
        self._process.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.cpu = used.ru_utime + used.ru_stime
        return True

    def output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._output.close()


def _again(name: str, turn: Turn, output: str) -> str:
    """How to run the input of a finding again: without sanitizers, then with them."""
    saved = re.search(r"Test unit written to (.+)", output)
    if saved is None:
        return f"no input was saved; exit status {turn.status}"
    again = shlex.join([str(turn.program), saved[1]])
    return f"again: {again}\nwith sanitizers: python -m tests.fuzz.build --input {shlex.quote(saved[1])} {name}"


def go_on(
    run: Run,
    inputs: int,
    jobs: int = 1,
    turn: int = TURN,
    sanitize: bool = False,
    report: Callable[[int], None] = lambda _inputs: None,
) -> None:
    """Take turns until the targets together have had this many inputs. Raises Finding."""
    programs = {name: build.build_fuzzer(name, fast=not sanitize) for name in run.targets}
    share = -(-inputs // len(programs))
    under_way: dict[str, Turn] = {}
    try:
        while True:
            waiting = [n for n, count in run.targets.items() if n not in under_way and count.inputs < share]
            if not waiting and not under_way:
                break
            for name in sorted(waiting, key=lambda n: run.targets[n].inputs)[: jobs - len(under_way)]:
                count = run.targets[name]
                under_way[name] = Turn(programs[name], name, min(turn, share - count.inputs), count.turns + 1)
            for name in [n for n, each in under_way.items() if each.ended()]:
                ended = under_way.pop(name)
                try:
                    run.add(name, ended)
                finally:
                    ended.kill()
                report(run.inputs)
            time.sleep(_POLL_SECONDS)
    finally:
        for each in under_way.values():
            each.kill()


def read_again(names: Iterable[str]) -> None:
    """Read the corpus of each target with sanitizers. Raises Finding."""
    for name in names:
        done = build.fuzz(name, "-runs=0")
        if done.returncode != 0:
            raise Finding(f"{name}: its corpus FOUND SOMETHING with sanitizers\n{done.stderr[-6000:]}")


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.long", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(build.C_TARGETS)}; default all")
    parser.add_argument("--inputs", type=int, default=1_000_000_000, help="for all targets together")
    parser.add_argument("--turn", type=int, default=TURN, help="inputs of one process")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--file", type=Path, help="keep the counts here after every turn, and go on with them")
    parser.add_argument("--sanitize", action="store_true", help="with address and undefined sanitizers in each turn")
    parser.add_argument("--json", action="store_true", help="print the figures of the table as JSON")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in build.C_TARGETS:
            parser.error(f"{name}: one of {', '.join(build.C_TARGETS)} expected")
    signal.signal(signal.SIGTERM, _stop)
    run = Run(asked.names or build.C_TARGETS, asked.file)
    status = 0
    try:
        with progress_bar(not asked.json) as progress:
            go_on(run, asked.inputs, asked.jobs, asked.turn, asked.sanitize, _reporter(progress, asked.inputs))
        read_again(run.targets)
    except Finding as finding:
        print(finding, file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        status = _STOPPED
    except build.Unavailable as missing:
        print(f"needs: {missing}", file=sys.stderr)
        return 1
    print(json.dumps({"inputs": run.inputs, "targets": run.figures()}) if asked.json else run.table())
    return status


def _reporter(progress: Callable[[Event], None] | None, total: int) -> Callable[[int], None]:
    def report(inputs: int) -> None:
        if progress is not None:
            progress(Event("fuzzing", inputs, total, "inputs"))

    return report


if __name__ == "__main__":
    sys.exit(main())
