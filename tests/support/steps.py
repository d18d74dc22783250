"""Runs an action in the middle of a call, before a chosen line of Python that klog executes for the call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import klog

_KLOG = os.path.dirname(klog.__file__) + os.sep


def at_step(number: int, action: Callable[[], object], call: Callable[[], Any]) -> tuple[bool, Any]:
    """Run call(), and action() before the line with this number, counted from 0. Returns whether the call has so many
    lines, and its result."""
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
