"""A forked process that runs a function and sends messages, each with the time at which it was sent."""

from __future__ import annotations

import os
import pickle
import struct
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from klog.errors import KlogError
from tests.support.file_systems import end_with_parent

ENDED, FAILED, WRONG = 0, 3, 4
"""Exit codes: at the end of the work, by an OSError or KlogError, by any other exception."""


class Message(NamedTuple):
    """at: CLOCK_MONOTONIC when it was sent, in seconds."""

    at: float
    content: Any


class Worker:
    """Runs work(send) in a forked child. For a `with` block: at its end the child is killed if it still runs."""

    def __init__(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        parent = os.getpid()
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            end_with_parent(parent)
            os.close(read)
            os._exit(_worked(work, write))
        os.close(write)
        self._pipe = os.fdopen(read, "rb")
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._code is None:
            self.signal(9)
            self.end()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def message(self) -> Message | None:
        """The next message, or None if the child has ended."""
        head = self._pipe.read(4)
        size = struct.unpack("I", head)[0] if len(head) == 4 else 0
        data = self._pipe.read(size)
        return Message(*pickle.loads(data)) if size and len(data) == size else None  # a killed child may send a part

    def rest(self) -> list[Message]:
        """All messages until the child has ended."""
        return list(iter(self.message, None))

    def end(self) -> int:
        """Wait until the child ends. Returns its exit code, negative for a signal."""
        self._pipe.close()
        self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def _worked(work: Callable[[Callable[[Any], None]], None], pipe: int) -> int:
    def send(content: Any) -> None:
        data = pickle.dumps((time.monotonic(), content))
        data = struct.pack("I", len(data)) + data
        while data:
            data = data[os.write(pipe, data) :]

    try:
        work(send)
    except (OSError, KlogError):
        return FAILED
    except BaseException:
        traceback.print_exc()
        return WRONG
    return ENDED
