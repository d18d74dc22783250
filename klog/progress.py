"""Progress of long work: the library calls back with events, commands draw them. No printing here."""

from __future__ import annotations

from collections.abc import Callable

from klog.values import dataclass

__all__ = ["Event", "Progress"]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True, slots=True)
class Event:
    """How far a stage is. done and total count `unit` (records, bytes, segments); total is None where unknown."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "records"
    note: str = ""


Progress = Callable[[Event], None]
