"""Show one case of the simulated disk step by step: `python tools/crash_replay.py SEED [--operation N] [--state NAME]`.

A seed determines a workload, its content and its crash states (tests/crash/workloads.py). Without --operation the case
is the first state that breaks a promise. The output has the operations that reached the disk, what was promised, what
each file contains after the power cut, and what klog did when it opened the directory.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.crash.workloads import cut, name_of
from tests.support.crash_states import State
from tests.support.power_cuts import PowerCuts


@dataclasses.dataclass
class Wanted:
    """The case to show. operation None: the first that breaks a promise."""

    operation: int | None = None
    state: str = "all"
    shown: bool = False


class _Enough(Exception):
    """Ends the run after the case has been shown."""


def replay_of(wanted: Wanted) -> type[PowerCuts[Any]]:
    """Return a subclass of PowerCuts that shows the wanted case and then ends the run."""

    class Replay(PowerCuts[Any]):
        def check(self, state: State, rng: random.Random) -> None:
            error: BaseException | None = None
            try:
                super().check(state, rng)
            except Exception as raised:
                error = raised
            chosen = wanted.operation is None or (wanted.operation, wanted.state) == (state.stop_at, state.name)
            if (error is None) == (wanted.operation is None) or not chosen:
                if error is not None:
                    raise error
                return
            wanted.shown = True
            self._show(state, error)
            raise _Enough

        def _show(self, state: State, error: BaseException | None) -> None:
            print(f"\n{len(self.log)} operations have reached the disk:")
            for number, line in enumerate(self.log):
                print(f"  {number:4} {line}")
            print(f"\npromised by then:\n  {self.promised()}")
            print(f'\nwhat landed, state "{state.name}" of a cut before operation {state.stop_at}:')
            now = next(self.files.cut(self.root).fixed())  # the state without a power cut
            for line in landed(state, now):
                print("  " + line)
            print("\nwhat klog does with it:")
            at = self._states.lay_out(state)
            with logged():
                for recovery in ("strict", "kafka"):
                    try:
                        print(f"  opened with recovery={recovery!r}: {self._open_state(at, recovery)}")
                        break
                    except Exception as refused:
                        print(f"  recovery={recovery!r}: {refused!r}")
            print(f"\n{'no promise is broken' if error is None else f'broken: {error!r}'}")

    return Replay


def landed(state: State, now: State) -> list[str]:
    """Return a line for each file of a state, compared with the file that processes read at the cut."""
    lines = []
    for path in sorted({*state.files, *now.files}):
        data, whole = state.files.get(path), now.files.get(path)
        if data is None:
            lines.append(f"{path}: missing")
        elif whole is None:
            lines.append(f"{path}: {len(data)} bytes under a name that it no longer had")
        elif data == whole:
            lines.append(f"{path}: {len(data)} bytes, all of them")
        else:
            first = next((at for at, (a, b) in enumerate(zip(data, whole, strict=False)) if a != b), None)
            where = "the end is missing" if first is None else f"other bytes from {first} on"
            lines.append(f"{path}: {len(data)} of {len(whole)} bytes, {where}")
    return lines


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Print klog's log lines."""
    logger, handler = logging.getLogger("klog"), logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("    %(name)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--operation", type=int, help="cut the power before this operation")
    parser.add_argument(
        "--state", default="all", help='"all", "none", "late-names", "old-names", "torn", "hole", "random-N"'
    )
    given = parser.parse_args(arguments)
    wanted = Wanted(given.operation, given.state)
    print(f"seed {given.seed}: workload {name_of(given.seed)}")
    with tempfile.TemporaryDirectory(prefix="klog-crash-") as folder:
        try:
            print(f"no such case in this run: {cut(Path(folder), given.seed, rig=replay_of(wanted))}")
        except _Enough:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
