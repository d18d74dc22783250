"""Counts the Python frames that a call enters, including those of libraries. Native functions enter none."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

from tests.support.no_gc import no_gc


def frames_of(call: Callable[[], object]) -> Counter[str]:
    """{name of a function: how often the call entered it}, without the call itself."""
    entered: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered[frame.f_code.co_name] += 1

    before = sys.getprofile()
    with no_gc():
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(before)
    entered.subtract([call.__name__])
    return +entered
