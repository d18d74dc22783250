"""A path that the disk cannot find."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def break_stat(monkeypatch: pytest.MonkeyPatch, bad: Path) -> None:
    """Let each os.stat of this path fail with EIO."""
    real = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if not isinstance(path, int) and os.fspath(path) == str(bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, *args, **options)

    monkeypatch.setattr(os, "stat", stat)
