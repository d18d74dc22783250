"""Directories for a piece of work: they are removed, also if a signal comes while they are made or removed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.scratch import scratch_directory
from tests.cli.test_broker import action


class Came(Exception):
    """What the handler raises."""


def _raise(*_: object) -> None:
    raise Came


@pytest.mark.parametrize("call", ["mkdir", "rmdir", "unlink", "scandir"])
def test_a_signal_leaves_nothing(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = getattr(os, call)

    def interrupted(*args: Any, **options: Any) -> Any:
        found = real(*args, **options)
        signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(os, call, interrupted)
    with action(signal.SIGTERM, _raise):
        with pytest.raises(Came), scratch_directory("work-", str(tmp_path)) as path:
            Path(path, "file").touch()
        assert signal.getsignal(signal.SIGTERM) is _raise
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_work_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch_directory("work-", str(tmp_path)):
        1 // 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []


def test_the_error_has_the_advice(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with (
        pytest.raises(FileNotFoundError, match="directory; name another one") as caught,
        scratch_directory("work-", missing, "name another one"),
    ):
        raise AssertionError("it was made")
    assert caught.value.filename == missing
