"""klog health"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import klog
from klog.cli.group import cli

pytestmark = pytest.mark.disk


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [*map(str, arguments)])
    return result.exit_code, result.output


def test_findings_are_printed_and_a_critical_one_is_the_exit_code(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        for _ in range(2):
            logs.log("t").append([(b"k", b"v")])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    code, output = run("health", "--json", tmp_path / "data")
    found = json.loads(output)
    assert found.keys() == {"severity", "findings", "unknown"} and code == (3 if found["severity"] == "critical" else 0)
    assert {each["check"] for each in found["findings"]} >= {"disk_space", "log_directory", "log_readable", "segments"}
    code, output = run("health", "--all", tmp_path / "data")
    assert "ok       log_readable: 1 logs: every log can be opened" in output and "unknown  flush_time" in output
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")} == before
    segment = tmp_path / "data" / "t-0" / f"{0:020}.log"
    segment.unlink()
    segment.symlink_to(segment.name)
    code, output = run("health", tmp_path / "data")
    assert code == 3 and "critical log_readable: t-0: " in output and "→ run `klog verify`" in output
