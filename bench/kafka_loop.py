"""A warm JVM that runs Kafka's own classes on request, started once for a contest: jvm/KafkaLoop.java, KafkaLog.java.

One request at a time, from one thread. Each reply is waited for, with a time limit; close() ends the JVM that it
started and nothing else, and the JVM ends by itself when its stdin is closed.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contest import Unavailable
from tools import kafka_jars

VERSION = "4.1.0"
_SOURCES = Path(__file__).parent / "jvm"
_HEAP = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
_ANSWER_SECONDS = 120.0
# Replies discarded while the JVM still interprets and compiles: at least three, then as many as one of these allows.
_WARM_UP_ANSWERS = 100
_WARM_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds of one run as the JVM measured them, and the amount of data."""

    seconds: float
    records: int
    bytes: int


class KafkaJvm:
    """A JVM that runs one of the programs in bench/jvm. Raises Unavailable where there is no JDK or no jars."""

    def __init__(self, program: str, *arguments: str) -> None:
        try:
            jars = kafka_jars.get(VERSION)
        except kafka_jars.Unavailable as missing:
            raise Unavailable(str(missing)) from missing
        classes = jars.compile(_SOURCES, "bench")
        self._process = subprocess.Popen(
            ["java", *_HEAP, "-cp", f"{classes}:{jars.lib}/*", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
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
            raise AssertionError(f"Kafka {VERSION}, asked to {question}: {' '.join(words[1:])}")
        return Answer(float(words[0]), int(words[1]), int(words[2]))

    def warm_up(self, task: str) -> Answer:
        """The last of the replies that do not count."""
        answers = [self.ask(task) for _ in range(3)]
        ends = time.monotonic() + _WARM_UP_SECONDS
        while len(answers) < _WARM_UP_ANSWERS and time.monotonic() < ends:
            answers.append(self.ask(task))
        return answers[-1]

    def _line(self) -> str:
        assert self._process.stdout is not None
        line, deadline = b"", time.monotonic() + _ANSWER_SECONDS
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer from Kafka {VERSION} within {_ANSWER_SECONDS:.0f} s")
            part = os.read(self._process.stdout.fileno(), 4096)
            if not part:
                raise AssertionError(f"the JVM of Kafka {VERSION} ended: exit {self._process.wait(10)}")
            line += part
        return line.decode().rstrip("\n")

    def close(self) -> None:
        """Its stdin ends, and so does the JVM; one that does not is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class KafkaLoop(KafkaJvm):
    """Kafka over `fetches`, whole batches in each, `turns` times per request."""

    def __init__(self, fetches: Sequence[bytes], folder: Path, turns: int) -> None:
        self._folder = folder
        super().__init__("KafkaLoop", str(write_fetches(fetches, folder / "fetches")), str(turns))

    def encoded(self) -> bytes:
        """The batches that Kafka makes of the records in the fetches."""
        path = self._folder / "encoded"
        self.ask(f"encoded {path}")
        return path.read_bytes()


def write_fetches(fetches: Sequence[bytes], file: Path) -> Path:
    """A file as the programs read it: the size before each."""
    file.write_bytes(b"".join(struct.pack(">i", len(fetch)) + fetch for fetch in fetches))
    return file
