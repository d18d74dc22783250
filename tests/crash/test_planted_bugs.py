"""The rig proves itself: each bug that is planted here is found, by a crash state that is not what was promised.

Without the bug the same states are all well: so say test_power_cut.py and test_life.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.errors import KlogError
from klog.log import checkpoint, flushing
from klog.manager.directories import LogDirectory
from klog.manager.manager import LogManager
from klog.segment import Segment
from tests.crash.life import cut_life
from tests.crash.producing import cut_producers

PATIENCE = 60


class Without:
    """Files as they were, but for some calls that do nothing."""

    def __init__(self, files: Any, *calls: str) -> None:
        self._files = files
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name in self._calls else getattr(self._files, name)


def without(owner: type, method: str, *calls: str, at: Callable[[Any], Any] = lambda it: it, name: str = "_files") -> Any:
    """The method, while the Files of `at(self)`, which is called `name` there, leaves out some calls."""
    plain = getattr(owner, method)

    def planted(self: Any, *args: Any, **more: Any) -> Any:
        holder = at(self)
        files = getattr(holder, name)
        setattr(holder, name, Without(files, *calls))
        try:
            return plain(self, *args, **more)
        finally:
            setattr(holder, name, files)

    return planted


def marker_before_the_flush(plain: Callable[[LogManager], None]) -> Callable[[LogManager], None]:
    def planted(self: LogManager) -> None:
        for directory in self._directories:
            self._files.replace(checkpoint.clean_shutdown_path(directory.path), directory._marker_text)
        plain(self)

    return planted


def home(segment: Segment) -> Any:
    return segment.home


def unsynced(plain: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *, sync: plain(self, sync=False)


PLANTS: dict[str, tuple[Any, str, Any]] = {
    "no directory fsync after the marker goes": (LogDirectory, "begin", without(LogDirectory, "begin", "fsync_dir")),
    "the marker before the last flush": (LogManager, "_stop", marker_before_the_flush(LogManager._stop)),
    "a roll that does not sync": (Segment, "deactivate", unsynced(Segment.deactivate)),
    "a flush that does not sync": (
        Segment,
        "sync_beside",
        without(Segment, "sync_beside", "fdatasync", at=home, name="files"),
    ),
    "a truncation that does not sync": (
        Segment,
        "truncate_to",
        without(Segment, "truncate_to", "fsync", "fdatasync", at=home, name="files"),
    ),
    "what a recovery cuts is not synced": (Segment, "cut", without(Segment, "cut", "fsync", at=home, name="files")),
    "segments of a crash that are never synced": (flushing, "sync_closed_locked", lambda *_: None),
    "no directory fsync after a flush": (flushing, "sync_directory", lambda *_: None),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_power_cut_shows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plant: tuple[Any, str, Any]) -> None:
    monkeypatch.setattr(*plant)
    with pytest.raises((AssertionError, KlogError)) as caught:
        cut_producers(tmp_path / "producers", stride=3, randoms=2)
        cut_life(tmp_path / "life", stride=3, randoms=2)
    assert "stop_at=" in caught.value.__notes__[-1]  # a crash state, and not the workload
    print(caught.value.__notes__[-1])
