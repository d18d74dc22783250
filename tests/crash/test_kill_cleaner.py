"""SIGKILL, at random times and repeatedly, of a manager whose cleaner runs beside appends.

The writer prints each append before and after it. After a kill each key has the last acknowledged value or tombstone,
or the one that was announced but not acknowledged. No key has an older value again, even if its tombstone was cleaned
away.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import klog

WRITER = """
import random, sys, klog
seed, number = int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
config = {"log.cleaner.backoff.ms": 1, "log.cleaner.threads": 1, "log.cleaner.dedupe.buffer.size": 24 * 4000}
logs = klog.open(sys.argv[1], create=True, config=config)
if "t" not in logs.topics():
    logs.create_topic("t", config={
        "cleanup.policy": "compact", "segment.bytes": 2000, "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": 0,
        "file.delete.delay.ms": 5,
    })
logs.start()
log = logs.log("t")
print("started", flush=True)
while True:
    key = chance.randrange(30)
    value = b"" if chance.random() < 0.3 else b"%09d" % number
    print(f"+ {key} {number} {len(value)}", flush=True)
    log.append([(b"%d" % key, value or None), (b"x%d" % key, b"%09d" % number * 3)])
    print(f"= {key} {number}", flush=True)
    number += 1
"""


def kill_writer(data: Path, seed: int, number: int, seconds: float) -> list[list[str]]:
    """The output of the writer, which is killed this many seconds after its start."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(data), str(seed), str(number)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "started\n"
        timer = threading.Timer(seconds, os.kill, (writer.pid, signal.SIGKILL))
        timer.start()
        output = writer.stdout.read()
        timer.join()
        assert writer.wait() == -signal.SIGKILL
    finally:
        writer.kill()
        writer.communicate()
    return [line.split() for line in output.split("\n")[:-1]]


def run(data: Path, seed: int, lives: int) -> None:
    """Run this many lives, each of which is killed; then longer ones until compaction has removed records, however busy
    the machine is."""
    chance = random.Random(seed)
    state: dict[bytes, bytes] = {}
    number = life = removed = 0
    while life < lives or removed == 0:
        doubtful: dict[bytes, bytes] | None = None
        seconds = chance.uniform(0.02, 0.4) * max(1, life - lives + 2)
        for what, key, at, *size in kill_writer(data, seed * 1000 + life, number, seconds):
            if what == "+":
                value = b"%09d" % int(at) if size != ["0"] else b""
                doubtful = {b"%s" % key.encode(): value, b"x%s" % key.encode(): b"%09d" % int(at) * 3}
                number = int(at) + 1
            elif doubtful is not None:
                state |= doubtful
                doubtful = None
        with klog.open(data) as logs:
            log = logs.log("t")
            assert not log.recovery.clean_shutdown
            found = {record.key: record.value or b"" for record in log.read()}
            expected = [state] if doubtful is None else [state, {**state, **doubtful}]
            live = {key: value for key, value in found.items() if value}
            wanted = [{key: value for key, value in one.items() if value} for one in expected]
            assert live in wanted, f"life {life}"
            state = expected[wanted.index(live)]
            assert [p.name for p in Path(log.path).iterdir() if p.suffix in (".cleaned", ".swap", ".tmp")] == []
            assert [one for one in log.verify().problems if one.kind not in ("gap", "leftover")] == []
            removed = log.log_end_offset - log.count()
        life += 1


def test_a_kill_during_cleaning_loses_no_record_and_restores_none(tmp_path: Path) -> None:
    """F1, CL39: P1 for acknowledged records, P3 for deleted ones."""
    run(tmp_path / "data", 1, 3)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills_during_cleaning(tmp_path: Path, seed: int) -> None:
    """F1, CL39"""
    run(tmp_path / "data", seed, 40)
