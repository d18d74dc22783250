"""A signal handler that runs during a call of its own thread, and calls the same log: it never waits for that thread,
and never changes state that is half changed. The tests run in a separate process, since a failure here hangs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

import klog
from klog.log.directory import checkpoint
from tests.support.handled import HANDLERS, SCENARIOS

ROOT = Path(__file__).resolve().parents[2]


def handled(*words: object) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.handled", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, int] = json.loads(done.stdout)
    return outcome


@pytest.mark.parametrize(
    ("scenario", "handler", "durability", "step"),
    [
        ("flush", "close", "os", 2),
        ("flush", "close one", "os", 3),
        ("append_and_roll", "append", "sync", 9),
        ("checkpoints", "close one", "os", 4),
        ("close", "close", "os", 7),
    ],
)
def test_a_handler_at_a_disk_operation(scenario: str, handler: str, durability: str, step: int) -> None:
    outcome = handled(scenario, handler, durability, step)
    assert outcome["refused"] > 0 and outcome["operations"] >= 2 * step


def test_a_handler_anywhere() -> None:
    outcome = handled("anywhere", 1, "os", 1)
    assert outcome["done"] + outcome["refused"] > 20


@pytest.mark.deep
@pytest.mark.parametrize(
    ("scenario", "handler", "durability"),
    [(*both, ("os", "sync", "interval")[at % 3]) for at, both in enumerate(itertools.product(SCENARIOS, HANDLERS))],
)
def test_a_handler_at_every_operation(scenario: str, handler: str, durability: str) -> None:
    outcome = handled(scenario, handler, durability, 1)
    assert outcome.get("refused", 0) + outcome.get("done", 0) == outcome["operations"] > 4


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durability", ["os", "sync", "interval"])
def test_handlers_anywhere(durability: str) -> None:
    for seed in range(4):
        handled("anywhere", seed, durability, 3)


def test_a_log_whose_close_failed_leaves_no_marker(tmp_path: Path) -> None:
    """D1: with the marker the next start would skip recovery."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=2)
        log = logs.log("t", 1)
        log.append([(None, b"1")])
        logs.log("t", 0)
        log._core.go_offline("interrupted in the middle", disk=False)
    assert not Path(checkpoint.clean_shutdown_path(str(tmp_path))).exists()
    with klog.open(tmp_path) as logs:
        logs.load_all()
        assert logs.log("t", 1).count() == 1
    assert Path(checkpoint.clean_shutdown_path(str(tmp_path))).exists()
