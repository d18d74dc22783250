"""A child process that does a contest's work on request, started once for a contest.

One request at a time, from one thread: a line on its stdin, a line on its stdout. Its first line is the path of its
thread in /proc. The parent waits for each reply, with a time limit. close() ends only the process that was started
here; the process also ends by itself when its stdin is closed.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contest import Contest, Contestant

_ANSWER_SECONDS = 120.0
# Replies are discarded while a JVM still interprets and compiles: at least three, then until one of the two limits.
_WARM_UP_ANSWERS = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to a request: seconds of one run as the process measured them, and the amount of data."""

    seconds: float
    records: int
    bytes: int


class Child:
    """A child process. `name` is for messages. `warm_up_seconds`: how long warm_up() may repeat a task."""

    def __init__(self, name: str, command: Sequence[str], *, warm_up_seconds: float = 0.0) -> None:
        self.name = name
        self._warm_up_seconds = warm_up_seconds
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            self.schedstat = Path("/proc", self._line(), "schedstat")
        except BaseException:
            self.close()
            raise

    def ask(self, question: str) -> Answer:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n".encode())
        words = self._line().split(" ")
        if words[0] == "error:":
            raise AssertionError(f"{self.name}, asked to {question}: {' '.join(words[1:])}")
        return Answer(float(words[0]), int(words[1]), int(words[2]))

    def warm_up(self, task: str) -> Answer:
        """Repeat a task until the process is warm, and return the last reply."""
        answers = [self.ask(task) for _ in range(3)]
        ends = time.monotonic() + self._warm_up_seconds
        while len(answers) < _WARM_UP_ANSWERS and time.monotonic() < ends:
            answers.append(self.ask(task))
        return answers[-1]

    def contestant(self, what: str, question: str, before: Callable[[], object] | None = None) -> Contestant:
        """Return a contestant. One request is one run, and the process measures it."""
        return Contestant(f"{self.name} {what}", lambda: self.ask(question).seconds, before=before, own_clock=True)

    def contest(
        self,
        name: str,
        records: int,
        bytes: int,
        contestants: tuple[Contestant, ...],
        check: Callable[[], None],
        close: Callable[[], object] | None = None,
        limit: Contestant | None = None,
    ) -> Contest:
        """Return a contest whose end also ends this process. close: called before that."""

        def end() -> None:
            if close is not None:
                close()
            self.close()

        return Contest(name, records, bytes, contestants, check, end, limit=limit, threads=(self.schedstat,))

    def _line(self) -> str:
        assert self._process.stdout is not None
        line, deadline = b"", time.monotonic() + _ANSWER_SECONDS
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer from {self.name} within {_ANSWER_SECONDS:.0f} s")
            part = os.read(self._process.stdout.fileno(), 4096)
            if not part:
                raise AssertionError(f"the process of {self.name} ended: exit {self._process.wait(10)}")
            line += part
        return line.decode().rstrip("\n")

    def close(self) -> None:
        """Close the stdin of the process, so that it ends. If it does not end within 10 seconds, it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def write_fetches(fetches: Sequence[bytes], file: Path) -> Path:
    """Write fetches into a file in the format of the programs: each after its size, an int32. Returns the file."""
    file.write_bytes(b"".join(struct.pack(">i", len(fetch)) + fetch for fetch in fetches))
    return file
