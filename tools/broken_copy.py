"""A copy of this tree in which one text of one file is replaced, and tests that are expected to fail with it.

    with Copy(folder) as copy, copy.changed(Change("klog/log/write/flush.py", old, new)):
        outcome = copy.test(["tests/log/test_flushing.py"], seconds=60)

A changed .pyx file is compiled, and so are the modules that a Change of C sources names. When the change ends, the copy
has the files of this tree again. One copy is for one thread.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_CORE = ("build/release/lib", "build/release/csrc")  # csrc as a library
_COPIED = ("klog", "csrc", "tests", "tools", "docs", "bench", "examples", "pyspark_klog", *_CORE)
_FOUND, _PASSED = 1, 0  # exit codes of pytest


class Change(NamedTuple):
    """One replacement: `old` occurs exactly once in the file. modules: .pyx files to be compiled again."""

    file: str
    old: str
    new: str
    modules: tuple[str, ...] = ()

    @property
    def rebuilt(self) -> tuple[str, ...]:
        return (self.file,) if self.file.endswith(".pyx") else self.modules


class Outcome(NamedTuple):
    """found: a test failed, crashed or did not end. reason: which, and how."""

    found: bool
    seconds: float
    reason: str


class Unusable(Exception):
    """Raised if a change cannot be made or built, or if tests cannot run: then there is no result."""


def occurrences(change: Change) -> int:
    return (ROOT / change.file).read_text().count(change.old)


class Copy:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        for name in _COPIED:
            if (ROOT / name).exists():
                shutil.copytree(ROOT / name, self.root / name, symlinks=True)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, self.root / path.name)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",  # Python compares times in seconds: it would miss a second change
            "HYPOTHESIS_PROFILE": "ci",
        }

    @contextlib.contextmanager
    def changed(self, change: Change) -> Iterator[None]:
        """Apply a change until the end of the block. Raises Unusable."""
        path = self.root / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise Unusable(f"{change.file}: the text to replace occurs {text.count(change.old)} times, not once")
        try:
            path.write_text(text.replace(change.old, change.new))
            if change.rebuilt:
                self._build(change.rebuilt)
            yield
        finally:
            self._restore(change)

    def test(self, arguments: Sequence[str], seconds: float, each: float | None = None) -> Outcome:
        """Run pytest, or a command that begins with `make`, until the first failure. Raises Unusable.

        seconds: the limit of all tests together. each: that of one test.
        """
        began = time.monotonic()
        if arguments[0] == "make":
            code, output = self._run(arguments, seconds)
            return Outcome(code != 0, time.monotonic() - began, _last_line(output) if code else "passed")
        options = ["-x", "-rfE", "-m", "not deep", "--tb=line", "--show-capture=no", f"--timeout={each or seconds:.0f}"]
        pytest = [sys.executable, "-m", "pytest", *options, *arguments]
        code, output = self._run(pytest, seconds + 30)
        taken = time.monotonic() - began
        if code > _FOUND:
            raise Unusable(f"pytest ended with {code}: {_last_line(output)}")
        return Outcome(code != _PASSED, taken, _failure(output) if code else "passed")

    def _run(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        """Exit code and output; a negative code for a crash. Raises Unusable for a command that does not end."""
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise Unusable(f"no end within {seconds:.0f} s") from None
        return process.returncode, output

    def _build(self, modules: Sequence[str]) -> None:
        self._environment["KLOG_ONLY"] = " ".join(modules)
        build = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"]
        code, output = self._run(build, 600)
        if code:
            raise Unusable(f"the change does not compile: {output[-2000:]}")

    def _restore(self, change: Change) -> None:
        shutil.copy2(ROOT / change.file, self.root / change.file)
        for module in change.rebuilt:
            for path in (ROOT / module).parent.glob(f"{Path(module).stem}.*.so"):
                shutil.copy2(path, self.root / path.relative_to(ROOT))
        if change.file.startswith("csrc/"):
            for name in _CORE:
                shutil.rmtree(self.root / name, ignore_errors=True)
                if (ROOT / name).exists():
                    shutil.copytree(ROOT / name, self.root / name)


def _failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR tests"))]
    return lines[0] if lines else _last_line(output)


def _last_line(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
