"""A child process that does a contest's work on request, started once for a contest.

One request at a time, from one thread: a line on its stdin, a line on its stdout. Its first line is the place of its
thread in /proc. Each reply is waited for, with a time limit; close() ends the process that it started and nothing else,
and the process ends by itself when its stdin is closed.
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
# Replies discarded while a JVM still interprets and compiles: at least three, then as many as one of these allows.
_WARM_UP_ANSWERS = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds of one run as the process measured them, and the amount of data."""

    seconds: float
    records: int
    bytes: int


class Child:
    """`name` is for messages. `warm_up_seconds` is for processes that are slow at first."""

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
        """The last of the replies that do not count."""
        answers = [self.ask(task) for _ in range(3)]
        ends = time.monotonic() + self._warm_up_seconds
        while len(answers) < _WARM_UP_ANSWERS and time.monotonic() < ends:
            answers.append(self.ask(task))
        return answers[-1]

    def contestant(self, what: str, question: str, before: Callable[[], object] | None = None) -> Contestant:
        """One question is one run, on its own clock."""
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
        """A contest with this process, which ends with it. close: for what else ends then."""

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
        """Its stdin ends, and so does the process; one that does not is killed."""
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
    """A file as the programs read it: the size before each."""
    file.write_bytes(b"".join(struct.pack(">i", len(fetch)) + fetch for fetch in fetches))
    return file
