"""Plants the bugs of tests/planted/*.toml, one at a time, in a copy of the tree: the named tests must find each.

    python -m tools.plant                      all of them
    python -m tools.plant --list               their names
    python -m tools.plant flush -j 1           those whose file, area or name contains a word
    python -m tools.plant --table              all of them, as rows for tests/crash/FINDINGS.md

A bug is found if a named test fails with it, and passes without it. Exit code 1 if one is not found.

    [[bug]]
    name = "what is wrong"                     rule = "what it breaks: S1-S12, W1-W5, P1-P8, a module's own rules"
    file = "klog/..."                          old, new: the text, which occurs once, and what replaces it
    tests = ["tests/...::test_..."]            arguments for pytest, or ["make", "test-c"]
    modules = ["klog/....pyx"]                 for a change of C: the modules that are compiled again
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.broken_copy import ROOT, Change, Copy, Outcome, Unusable

PLANTED = ROOT / "tests" / "planted"
SECONDS_MAX = 120.0


class Bug(NamedTuple):
    area: str  # name of its .toml
    name: str
    rule: str
    change: Change
    tests: tuple[str, ...]


def bugs() -> list[Bug]:
    return [
        Bug(
            path.stem,
            entry["name"],
            entry["rule"],
            Change(entry["file"], entry["old"], entry["new"], tuple(entry.get("modules", ()))),
            tuple(entry["tests"]),
        )
        for path in sorted(PLANTED.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["bug"]
    ]


def plant(copy: Copy, bug: Bug) -> Outcome:
    """Run the tests of a bug in a copy that has the bug. Raises Unusable."""
    with copy.changed(bug.change):
        return copy.test(bug.tests, SECONDS_MAX)


def check_clean(copy: Copy, planted: Sequence[Bug]) -> None:
    """Check that the tests that find bugs pass without them. Raises Unusable if one fails."""
    tests = sorted({test for bug in planted if bug.tests[0] != "make" for test in bug.tests})
    outcome = copy.test(tests, SECONDS_MAX * max(1, len(planted)), each=SECONDS_MAX) if tests else None
    if outcome is not None and outcome.found:
        raise Unusable(f"a test fails without any bug: {outcome.reason}")


def run(chosen: Iterable[Bug], jobs: int, note: Callable[[Bug, Outcome], None]) -> None:
    """Plant each bug; note() is called with its outcome, by one thread at a time."""
    todo, lock = list(chosen)[::-1], threading.Lock()

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="klog-planted-", ignore_cleanup_errors=True) as folder:
            copy = Copy(Path(folder))
            while True:
                with lock:
                    if not todo:
                        return
                    bug = todo.pop()
                try:
                    outcome = plant(copy, bug)
                except Unusable as error:
                    outcome = Outcome(False, 0.0, f"unusable: {error}")
                with lock:
                    note(bug, outcome)

    workers = [threading.Thread(target=work) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def row(bug: Bug, outcome: Outcome) -> str:
    """Return a row of the table of FINDINGS.md."""
    found = " ".join(bug.tests).replace("|", "\\|")
    return f"| {bug.name} | {bug.rule} | `{bug.change.file}` | {outcome.seconds:.1f} | `{found}` |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only bugs with one of these words")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="names only")
    parser.add_argument("--table", action="store_true", help="print rows of a Markdown table")
    asked = parser.parse_args()
    chosen = [
        bug
        for bug in bugs()
        if not asked.words or any(word in f"{bug.area} {bug.change.file} {bug.name}" for word in asked.words)
    ]
    missed: list[Bug] = []

    def note(bug: Bug, outcome: Outcome) -> None:
        if not outcome.found:
            missed.append(bug)
        verdict = "found" if outcome.found else "MISSED"
        line = row(bug, outcome) if asked.table and outcome.found else None
        print(
            line or f"{verdict:6} {outcome.seconds:6.1f} s  {bug.area}: {bug.name}\n       {outcome.reason}", flush=True
        )

    if asked.list:
        for bug in chosen:
            print(f"{bug.area}: {bug.name} ({bug.rule}, {bug.change.file})")
        return
    run(chosen, asked.jobs, note)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} bugs found")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
