"""A pytest plugin that runs mutants without a new interpreter: each in a fork of this process, after the collection.

    python -m pytest -p tools.mutate_in_place --mutants=KEYS.json tests/log        (tools.mutate starts it)

The fork gives the functions of the module the code of the mutant, and runs the quickest tests that reach its line until
one fails. So a mutant that is found costs some milliseconds more than those tests. Child processes of a test have the
modules of the tree, without the change: `tools.mutate --again` runs survivors in a copy of the tree.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

from tools import mutate
from tools.broken_copy import ROOT


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", metavar="FILE", type=Path, help="a JSON list of the keys of the mutants to run")
    parser.addoption("--mutant-jobs", type=int, default=2, help="mutants that run at the same time")
    parser.addoption("--mutant-seconds", type=float, default=40.0, help="of the tests of one mutant, at most")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Mutants(config))


class _Running(NamedTuple):
    mutant: mutate.Mutant
    tests: list[str]
    began: float


class _Mutants:
    def __init__(self, config: pytest.Config) -> None:
        self._keys = set(json.loads(config.getoption("--mutants").read_text()))
        self._seconds_max = config.getoption("--mutant-seconds")
        self._jobs = config.getoption("--mutant-jobs")
        self._running: dict[int, _Running] = {}  # by process
        self._passing: dict[str, bool] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._lines = mutate.Lines(self._seconds_max)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # it ends a sleep
        for mutant in self._todo():
            self._wait(self._jobs - 1)
            tests = self._lines.tests(mutant)
            self._start(mutant, [name for name in tests if name in self._items])
        self._wait(0)
        return True

    def _start(self, mutant: mutate.Mutant, tests: list[str]) -> None:
        if not tests:
            mutate.store(mutant, "unreached", 0.0, "no test reaches the line")
            return
        process = os.fork()
        if process == 0:
            _run(mutant, [self._items[name] for name in tests])
        self._running[process] = _Running(mutant, tests, time.monotonic())

    def _passes_without_change(self, name: str) -> bool:
        """Does the test pass in a fork, too?"""
        if name not in self._passing:
            process = os.fork()
            if process == 0:
                _run(None, [self._items[name]])
            self._passing[name] = os.waitpid(process, 0)[1] == 0
            _reason(process).unlink()
        return self._passing[name]

    def _todo(self) -> Iterator[mutate.Mutant]:
        for module in mutate.MUTATED:
            importlib.import_module(module.removesuffix(".py").replace("/", "."))
            yield from (mutant for mutant in mutate.mutants(module) if mutant.key in self._keys)

    def _wait(self, at_most: int) -> None:
        """Wait until at most so many mutants run."""
        while len(self._running) > at_most:
            for process, running in list(self._running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    with contextlib.suppress(ProcessLookupError):  # children that the tests have left
                        os.killpg(process, signal.SIGKILL)
                    del self._running[process]
                    self._end(running, process, status)
            if len(self._running) > at_most:
                time.sleep(0.05)

    def _end(self, running: _Running, process: int, status: int) -> None:
        reason = _reason(process)
        name, _, found = reason.read_text().partition("\n") if reason.exists() else ("", "", "")
        reason.unlink(missing_ok=True)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, _UNUSABLE) and name and not self._passes_without_change(name):
            self._start(running.mutant, [other for other in running.tests if other != name])
            return
        if code not in (0, _UNUSABLE) and name:
            self._lines.found(running.mutant.file, name)
        verdict = "survived" if code == 0 else "unusable" if code == _UNUSABLE else "found"
        mutate.store(
            running.mutant, verdict, time.monotonic() - running.began, f"{name}: {found or f'ended with {code}'}"
        )


_UNUSABLE = 3


def _reason(process: int) -> Path:
    return Path(tempfile.gettempdir()) / f"klog-mutant-{os.getuid()}-{process}"


class _Failures:
    """A plugin of pytest: the last lines of the failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.append(str(report.longrepr).splitlines()[-1])


def _run(mutant: mutate.Mutant | None, tests: list[pytest.Item]) -> None:
    """Run the tests with the mutant, and end the process: 0 if all have passed."""
    os.setsid()
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        if mutant is not None:
            _replace(mutant)
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # a fork leaves that of the parent
        seen = _Failures()
        tests[0].config.pluginmanager.register(seen)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for item, following in zip(tests, [*tests[1:], tests[-1]], strict=True):
            _reason(os.getpid()).write_text(item.nodeid)
            # The next item is never None: the end of the session belongs to the first process.
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if seen.failures:
                _reason(os.getpid()).write_text(f"{item.nodeid}\n{seen.failures[0]}")
                break
        else:
            code = 0
    except ValueError as error:  # code with other free variables: only a copy of the tree can run it
        _reason(os.getpid()).write_text(f"\n{error!r}")
        code = _UNUSABLE
    finally:
        os._exit(code)


def _replace(mutant: mutate.Mutant) -> None:
    """Give the functions of the module the code of the mutant. Raises ValueError."""
    path = str(ROOT / mutant.file)
    before = _codes(compile((ROOT / mutant.file).read_text(), path, "exec"))
    after = _codes(compile(mutant.mutated, path, "exec"))
    changed = {_place(old): new for old, new in zip(before, after, strict=True) if old != new}
    replaced = 0
    gc.unfreeze()  # what is frozen is in no list
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == path:
            new = changed.get(_place(function.__code__))
            if new is not None:
                function.__code__ = new
                replaced += 1
    gc.freeze()
    if not replaced:
        raise ValueError(f"no function of {sorted(changed)} exists yet")


def _place(code: CodeType) -> str:
    return f"{code.co_qualname} in line {code.co_firstlineno}"


def _codes(code: CodeType) -> list[CodeType]:
    """The codes of functions and methods, in the order of the source. Inner functions are made by their code."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    of_classes = code.co_name == "<module>" or not code.co_flags & inspect.CO_OPTIMIZED
    return [code, *(found for each in inner for found in _codes(each))] if of_classes else [code]
