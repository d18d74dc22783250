"""A suite has a name, settings for its broker, a folder that is prepared once, and a function that runs its tests and
returns an outcome for each."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.clients.servers import Server, Unavailable

__all__ = ["Outcome", "Outcomes", "Run", "Suite", "Unavailable", "command", "need", "prepared"]

HOME = Path(__file__).resolve().parent.parent.parent.parent / "build" / "clients"
Outcome = Literal["passed", "failed", "skipped"]
Outcomes = dict[str, Outcome]
Run = Callable[[Path, Server, Sequence[str], Sequence[str], Path], Outcomes]


@dataclass(frozen=True)
class Suite:
    """prepare(folder) fills a folder, and does so again after `version` has changed. run(folder, server, only, without, log) runs
    the tests named in `only` (all if it is empty) except those in `without`, and writes their output to `log`.
    settings: broker properties. folder: the name of the folder; suites with the same one share it."""

    name: str
    version: str
    prepare: Callable[[Path], None]
    run: Run
    settings: Mapping[str, object] = field(default_factory=dict)
    folder: str = ""


@contextmanager
def prepared(suite: Suite) -> Iterator[Path]:
    """The suite's folder, which is prepared first if it is missing or of another version. Only one process at a time uses
    it."""
    folder = HOME / (suite.folder or suite.name)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "complete"
        if not (stamp.exists() and stamp.read_text() == suite.version):
            shutil.rmtree(folder)
            folder.mkdir()
            suite.prepare(folder)
            stamp.write_text(suite.version)
        yield folder


def need(*programs: str) -> None:
    """Raise Unavailable for the first of these programs that is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            raise Unavailable(program)


def command(
    arguments: Sequence[str | Path],
    *,
    cwd: Path,
    log: Path | None = None,
    timeout: float = 1800,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    """Run a program and return its output, stdout and stderr, which is also appended to `log`. After `timeout` seconds it
    is killed. If `check` is set, AssertionError with the end of the output is raised for a program that failed or was
    killed."""
    process = subprocess.Popen(
        [str(each) for each in arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        start_new_session=True,  # so that its child processes can be killed, too
    )
    try:
        output = process.communicate(timeout=timeout)[0].decode(errors="replace")
        ended = True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, ended = process.communicate()[0].decode(errors="replace"), False
    if log is not None:
        with log.open("a") as file:
            file.write(output)
    if not ended and check:
        raise AssertionError(f"{arguments[0]} did not end in {timeout} s:\n{output[-4000:]}")
    if check and process.returncode != 0:
        raise AssertionError(f"{arguments[0]} ended with {process.returncode}:\n{output[-4000:]}")
    return output
