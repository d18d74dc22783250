"""An exception at any instruction of one function, as a signal handler raises it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class Ended(Exception):
    """The exception that a signal handler raises."""


def ends(trace: Any, error: type[BaseException], work: Callable[[], object]) -> bool:
    """Run it under a trace function. Did that end it by this exception?"""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except error:
        return True
    finally:
        sys.settrace(before)
    return False


class Raising:
    """A trace function that raises Ended before instruction number `number` of a function of a file."""

    def __init__(self, file: str, function: str, number: int) -> None:
        self.file, self.function = file, function
        self.left = number

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            code = frame.f_code
            frame.f_trace_opcodes = code.co_name == self.function and code.co_filename.endswith(self.file)
            return self if frame.f_trace_opcodes else None
        if event == "opcode":
            self.left -= 1
            if self.left == -1:
                raise Ended
        return self

    def ends(self, work: Callable[[], object]) -> bool:
        """Run it. Was it ended?"""
        return ends(self, Ended, work)
