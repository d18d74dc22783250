"""tools/crash_replay.py shows one case: the one that its arguments name, or the first that breaks a promise."""

from __future__ import annotations

from typing import Any

import pytest

from klog.segment import Segment
from tests.crash import history, workloads
from tools import crash_replay


@pytest.fixture(autouse=True)
def only_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "WORKLOADS", {"history": (1, history.cut_history)})


def test_a_named_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert crash_replay.main(["100", "--operation", "60"]) == 0
    shown = capsys.readouterr().out
    for line in ("60 operations have reached the disk", "promised by then", "what landed", "no promise is broken"):
        assert line in shown


def test_no_such_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert crash_replay.main(["100", "--operation", "60", "--state", "nonsense"]) == 1
    assert "no such case" in capsys.readouterr().out


def test_a_bug_is_found_and_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The planted bug: a roll does not sync the old segment."""
    plain = Segment.deactivate

    def unsynced(self: Any, *, sync: bool) -> None:
        plain(self, sync=False)

    monkeypatch.setattr(Segment, "deactivate", unsynced)
    assert crash_replay.main(["100"]) == 0
    shown = capsys.readouterr().out
    assert "broken: AssertionError" in shown
    assert "what landed" in shown
