"""Injects every fault at every call site: see test_every_fault.py.

python -m tests.crash.every_fault reach                             report which call sites the operations reach
python -m tests.crash.every_fault inject [STRIDE [NAME [FIRST]]]    the same, and inject the faults of each call site
python -m tests.crash.every_fault each [STRIDE [NAME [FIRST]]]      the same, in each operation that reaches the site

STRIDE: inject every STRIDE-th of the faults, from number FIRST on. NAME: only operations with this in their names. Every
fault in each operation takes about 45 minutes of CPU.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klog.errors import KlogError
from tests.crash.inspect_and_spark import OPERATIONS
from tests.crash.operations import Book, Operation
from tests.support.intercept import Call, Fault, Injection, Sites, faults_of, is_preloaded, preloaded, record, watched
from tests.support.io_sites import ENGINE, ROOT, Site, modules

FAILED, UNREACHED = 2, 3
UNREACHED_TEXT = "the call was not made again"


def in_a_child(work: Callable[[], int], output: Path) -> int:
    """Run work() in a forked process, with its output in a file. Returns its result, or -9 if it was killed."""
    pid = os.fork()
    if pid == 0:
        status = FAILED
        try:
            fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended)


class Sweep:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.table = Sites()
        self.calls: dict[str, dict[Call, list[Site]]] = {}

    def record(self, name: str) -> None:
        operation, root, calls = OPERATIONS[name], self.copy(name, fresh=True), self.place / "calls"
        book = Book()

        def work() -> int:
            found = record(root, lambda: operation.run(root, book))
            operation.check(root, book.notes())
            calls.write_bytes(pickle.dumps([tuple(call) for call in found]))
            return 0

        output = self.place / "output"
        output.unlink(missing_ok=True)
        assert in_a_child(work, output) == 0, output.read_text()
        self.calls[name] = self.table.of([Call(*call) for call in pickle.loads(calls.read_bytes())])

    def copy(self, name: str, *, fresh: bool = False) -> Path:
        original = self.place / f"{name} prepared"
        if fresh:
            original.mkdir()
            OPERATIONS[name].prepare(original)
        root = self.place / "run"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(original, root)
        return root

    def cells(self, *, each: bool = False) -> list[tuple[str, Call, Fault]]:
        """One call for each combination of call site, function of libc and fault. A call is used for several sites where
        possible. each: one call of each operation, since operations may handle a fault in different ways."""
        met: set[tuple[Site, str, Fault]] = set()
        chosen = []
        for name, calls in self.calls.items():
            if each:
                met = set()
            for call, on_stack in calls.items():
                for fault in faults_of(call):
                    new = {(site, call.name, fault) for site in on_stack} - met
                    if new:
                        chosen.append((name, call, fault))
                        met |= new
        return chosen

    def try_everywhere(self, name: str, call: Call, fault: Fault) -> str | None:
        """inject(), and if the operation does not make this call again, the same at similar calls: some calls depend on
        the clock or on other threads."""
        wrong = self.inject(name, call, fault)
        if wrong is not UNREACHED_TEXT:
            return wrong
        site = self.calls[name][call][0]
        for other_name, calls in self.calls.items():
            for other, on_stack in calls.items():
                if other != call and other.name == call.name and site in on_stack:
                    wrong = self.inject(other_name, other, fault)
                    if wrong is not UNREACHED_TEXT:
                        return wrong
        return wrong

    def inject(self, name: str, call: Call, fault: Fault) -> str | None:
        """Run the operation with the fault and check the directory that it leaves. Returns a description of the failed
        check, or None."""
        root, operation = self.copy(name), OPERATIONS[name]
        output, book = self.place / "output", Book()
        output.unlink(missing_ok=True)
        killed = fault.kind.startswith("killed")
        # If the process survives, it is the one to try again: it must not hold a lock or a state of the failed attempt.
        ended = in_a_child(
            lambda: run_with(operation, root, book, Injection(call, fault)) or check(operation, root, book, fault),
            output,
        )
        if ended == UNREACHED:
            return UNREACHED_TEXT
        if ended != (-signal.SIGKILL if killed else 0):
            return f"the operation or the check ended with {ended}\n{output.read_text()}"
        if killed and in_a_child(lambda: check(operation, root, book, fault), output):
            return f"what is left is wrong\n{output.read_text()}"
        return None


def run_with(operation: Operation, root: Path, book: Book, injection: Injection) -> int:
    with watched(root, injection.decide):
        try:
            operation.run(root, book)
        except (OSError, KlogError) as error:
            if str(root) not in str(error) or "does not exist" in str(error):
                raise AssertionError("not the error of a disk, with its path") from error
        except AssertionError:
            if injection.fault.kind != "lost":
                raise
    return 0 if injection.hits or injection.fault.kind == "short" else UNREACHED


def check(operation: Operation, root: Path, book: Book, fault: Fault) -> int:
    try:
        operation.check(root, book.notes())
    except (KlogError, AssertionError):
        if fault.kind != "lost":
            raise
    return 0


def of_the_engine(call: Call) -> bool:
    """Whether a module of ENGINE makes the call, and not the operation itself or another package."""
    innermost = call.positions[0][0] if call.positions else "klog/" * bool(call.addresses)
    return innermost.startswith(ENGINE) or innermost == "klog/"


def load_all() -> None:
    """Import ENGINE, so that forked processes have the same libraries at the same addresses."""
    for path in modules():
        if path.stem != "__init__":
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def main(what: str, stride: str = "1", only: str = "", first: str = "0") -> None:
    with tempfile.TemporaryDirectory(
        prefix="klog-faults-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as at:
        load_all()
        sweep = Sweep(Path(at))
        for name in OPERATIONS:
            if only in name:
                sweep.record(name)
        reached = {site for calls in sweep.calls.values() for on in calls.values() for site in on}
        stray = sorted({
            f"{call.name} {call.positions[:1]} {[line for at in call.addresses[:2] for line in sweep.table.lines(at)]}"
            for calls in sweep.calls.values() for call, on in calls.items() if not on and of_the_engine(call)
        })  # fmt: skip
        missing = sorted(site.key for site in sweep.table.all.values() if site not in reached)
        cells = sweep.cells(each=what == "each")
        result: dict[str, Any] = {
            "missing": missing,
            "stray": stray,
            "cells": len(cells),
            "sites": len(sweep.table.all),
        }
        if what != "reach":
            wrong = []
            chosen = cells[int(first) % int(stride) :: int(stride)]
            for name, call, fault in chosen:
                if problem := sweep.try_everywhere(name, call, fault):
                    where = ", ".join(map(str, sweep.calls[name][call]))
                    wrong.append(f"{name}: {call.name} {fault.kind}{' for good' * fault.forever} at {where}\n{problem}")
                    print(wrong[-1], file=sys.stderr, flush=True)
            result["wrong"], result["injected"] = wrong, len(chosen)
        print(json.dumps(result))


if __name__ == "__main__":
    if is_preloaded():
        main(*sys.argv[1:])
    else:
        print(preloaded("-m", "tests.crash.every_fault", *sys.argv[1:]))
