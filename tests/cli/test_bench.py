"""klog bench disk and log: text output, --json, a picture, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import klog
from klog.cli import cli
from klog.cli.bench import BAR_CELLS, bar
from tests.cli.test_broker import action
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.disk
SMALL = ("--size", "32", "--seconds", "0.1")


def test_a_table_with_bars_and_advice(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["bench", "disk", str(tmp_path), *SMALL])
    assert result.exit_code == 0, result.output
    for word in ("APPEND 4 KIB", "buffered", "DURABLE APPEND", "p99 ms", "RANDOM READ", "sendfile", "advice", "█", "×"):
        assert word in result.stdout
    assert "writing about 32 MiB" in result.stderr and "writing about" not in result.stdout
    assert os.listdir(tmp_path) == []


def test_records_are_measured(tmp_path: Path) -> None:
    small = ("--size", "4", "--seconds", "0.1")
    result = CliRunner().invoke(cli, ["bench", "log", str(tmp_path), *small])
    assert result.exit_code == 0, result.output
    for word in ("APPEND 100 RECORDS", "interval", "sync", "p99 ms", "READ", "pairs", "COMPACT", "lz4", "█", "×"):
        assert word in result.stdout
    assert result.stdout.splitlines()[-1].startswith("all answers are right; ")
    assert "writing about 4 MiB" in result.stderr and "writing about" not in result.stdout
    result = CliRunner().invoke(cli, ["bench", "log", str(tmp_path), *small, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == {"directory", "results", "bytes_written", "seconds", "notes", "advice"}
    assert set(report["results"][0]) == {"contest", "way", "settings", "figures", "ratio", "ratio_min", "rounds"}
    assert os.listdir(tmp_path) == []


def test_a_wrong_answer_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = klog.Log.append
    monkeypatch.setattr(klog.Log, "append", lambda log, records: append(log, records[:-1]))
    result = CliRunner().invoke(cli, ["bench", "log", str(tmp_path), "--size", "4", "--seconds", "0.1", "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["type"] == "CorruptData"
    assert "other records are read than were appended: check the memory" in result.stderr


def test_json_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs: matplotlib")
    plot = tmp_path / "disk.svg"
    result = CliRunner().invoke(cli, ["bench", "disk", str(tmp_path), *SMALL, "--json", "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == {"directory", "results", "bytes_written", "seconds", "notes", "advice"}
    assert set(report["results"][0]) == {"contest", "way", "settings", "figures", "ratio", "ratio_min", "rounds"}
    assert set(report["advice"][0]) == {"setting", "reason"}
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["bench", "disk", "/nowhere"], 2),
        (["bench", "tape"], 2),
        (["bench", "disk", ".", "--size", "1"], 2),
        (["bench", "log", "/nowhere"], 2),
        (["bench", "log", ".", "--size", "3"], 2),
    ],
)
def test_usage(args: list[str], code: int) -> None:
    assert CliRunner().invoke(cli, args).exit_code == code


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("klog.trial.try_disk", interrupt)
    assert CliRunner().invoke(cli, ["bench", "disk", str(tmp_path)]).exit_code == 130


_WAITS_IN_A_TRIAL = """
import time
from klog.cli import main
from klog.trial.rounds import Rounds

Rounds.wrote = lambda self, size: time.sleep(600)
main()
"""


@pytest.mark.parametrize("words", ["bench disk", "tune"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files(tmp_path: Path, number: signal.Signals, words: str) -> None:
    """A broker refuses to start with a directory that is not a partition's."""
    klog.open(tmp_path, create=True).close()
    before = sorted(tmp_path.iterdir())
    with action(number, signal.SIG_DFL):
        process = subprocess.Popen(
            [sys.executable, "-c", _WAITS_IN_A_TRIAL, *words.split(), str(tmp_path)],
            cwd=Path(klog.__file__).parent.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        while not list(tmp_path.glob(".klog-bench-*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    finally:
        process.kill()
        process.wait()
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "1 MiB free, 80 MiB needed: free space there, or give a smaller --size", str(tmp_path))

    monkeypatch.setattr("klog.trial.try_disk", full)
    result = CliRunner().invoke(cli, ["bench", "disk", str(tmp_path)])
    assert result.exit_code == 1
    assert "smaller --size" in result.stderr and "Traceback" not in result.output


def test_bars() -> None:
    assert bar(1, "utf-8") == "█" * BAR_CELLS
    assert bar(0.5 + 1 / (BAR_CELLS * 8), "utf-8") == "█" * (BAR_CELLS // 2) + "▏"
    assert bar(0, "utf-8") == "▏"
    assert bar(0.5, "ascii") == "#" * (BAR_CELLS // 2)
