"""Run an action between two steps of a call: at each line of Python that klog runs for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import klog

_KLOG = os.path.dirname(klog.__file__) + os.sep


def at_step(number: int, action: Callable[[], object], call: Callable[[], Any]) -> tuple[bool, Any]:
    """The result of call(), with action() run before its line of this number, from 0 on; False: it has fewer lines."""
    left = number
    came = False

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left, came
        if event == "call":
            return step if frame.f_code.co_filename.startswith(_KLOG) else None
        if event == "line" and not came:
            if left == 0:
                came = True
                sys.settrace(None)
                action()
            left -= 1
        return None if came else step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        answer = call()
    finally:
        sys.settrace(before)
    return came, answer
