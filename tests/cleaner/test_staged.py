"""A cleaning by two processes: what is planned, built and adopted."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.cleaner import adopt, build, plan_cleaning, staged
from klog.errors import Overtaken
from klog.log.core import LogCore

CONFIG = {"cleanup.policy": "compact", "delete.retention.ms": 0}


def test_a_truncation_while_a_cleaning_is_planned_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that replace the removed ones are below the checkpoint that was read, but are not clean."""
    built = tmp_path / "built"
    built.mkdir()
    with klog.Log.open(tmp_path / "t-0", config=CONFIG) as log:
        log.append([(b"k%d" % number, b"v") for number in range(6)])
        log.compact(roll=True)

        def read_first_dirty(core: LogCore) -> int | None:
            found = real(core)
            log.truncate_to(2)
            for value in (b"v", None, b"w", b"x", b"y", b"z"):
                log.append([(b"other" if value else b"deleted", value)])
            log.roll()
            return found

        real = staged.read_first_dirty
        monkeypatch.setattr(staged, "read_first_dirty", read_first_dirty)
        plan = plan_cleaning(log._core)
        assert plan is not None
        before = [(record.offset, record.key, record.value) for record in log.read()]
        with klog.Log.open(tmp_path / "t-0", config=CONFIG, read_only=True) as reader:
            made = build(reader._core, plan, str(built))
        with pytest.raises(Overtaken, match="was truncated"):
            adopt(log._core, plan, made, str(built))
        assert [(record.offset, record.key, record.value) for record in log.read()] == before
