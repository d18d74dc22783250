"""`klog demo`, a thin wrapper of klog.demo.run."""

from __future__ import annotations

import contextlib
import json

import pytest
from click.testing import CliRunner

from klog import demo
from klog.cli import cli
from klog.cli import demo as cli_demo
from klog.progress import Event


@pytest.fixture
def runs(monkeypatch):
    """Replace the demo by one event, and record the arguments of each run."""
    calls = []

    def run(directory, *, spark, progress, out):
        calls.append({"directory": str(directory), "spark": spark, "to_stdout": out is None})
        progress(Event("import", 1, 2))
        return _Result()

    monkeypatch.setattr(demo, "run", run)
    return calls


class _Result:
    def as_dict(self):
        return {"events": 992_643}


def test_defaults(runs):
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 0, result.output
    assert runs == [{"directory": "klog-demo", "spark": True, "to_stdout": True}]


def test_json_is_the_only_output(runs, tmp_path):
    result = CliRunner().invoke(cli, ["demo", "--dir", str(tmp_path), "--no-spark", "--json", "--no-progress"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"events": 992_643}
    assert runs == [{"directory": str(tmp_path), "spark": False, "to_stdout": False}]


def test_a_foreign_directory_is_a_usage_error_and_is_kept(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(cli, ["demo", "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "was not made by klog demo" in " ".join(result.stderr.split())
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_one_bar_at_a_time(monkeypatch):
    """A bar opens with its stage and is removed when the stage is complete, before the story continues."""
    seen = []

    @contextlib.contextmanager
    def bar(wanted):
        seen.append("open")
        yield lambda event: seen.append((event.stage, event.done))
        seen.append("close")

    monkeypatch.setattr(cli_demo, "progress_bar", bar)
    bars = cli_demo.StageBars(True)
    for event in (Event("read", 0), Event("import", 1, 2), Event("import", 2, 2)):
        bars(event)
    assert seen[-1] == "close", "before the story continues, not with the next stage"
    bars(Event("spark", 0))
    bars.close()
    assert seen == [
        *("open", ("read", 0), "close"),
        *("open", ("import", 1), ("import", 2), "close"),
        *("open", ("spark", 0), "close"),
    ]
