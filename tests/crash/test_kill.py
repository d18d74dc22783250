"""SIGKILL of a writer process during appends: every record that it acknowledged over a pipe is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import klog

WRITER = """
import sys, klog
logs = klog.open(sys.argv[1], create=True)
if "t" not in logs.topics():
    logs.create_topic("t", config={"segment.bytes": 200_000})
log = logs.log("t")
number = log.log_end_offset
while True:
    values = [(None, b"%09d" % (number + i) + b"v" * 300) for i in range(40)]
    log.append(values, compression="lz4" if number % 3 else None)
    number += 40
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def kill_writer(path: Path, acknowledgements: int) -> int:
    """Run the writer until it has acknowledged this many appends, and kill it. Returns the last acknowledged log
    end."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        acknowledged = 0
        for _ in range(acknowledgements):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split("\n")
        return max([acknowledged, *(int(line) for line in rest[:-1] if line)])
    finally:
        writer.kill()
        writer.wait()
        if writer.stdout is not None:
            writer.stdout.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_no_acknowledged_record_and_shows_no_partial_append(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "data"
    for _ in range(3):
        acknowledged = kill_writer(path, rng.randrange(5, 120))
        with klog.open(path, read_only=True) as logs:
            assert logs.log("t").log_end_offset >= acknowledged
        with klog.open(path) as logs:
            log = logs.log("t")
            assert not log.recovery.clean_shutdown
            assert log.recovery.reason
            values = [record.value[:9] for record in log.read()]
            assert len(values) >= acknowledged
            assert values == [b"%09d" % number for number in range(len(values))]
            assert not klog.verify(path).problems


def test_readers_continue_across_a_writers_kill_and_restart(tmp_path: Path) -> None:
    path = tmp_path / "data"
    first = kill_writer(path, 10)
    with klog.open(path, read_only=True) as logs:
        reader = logs.log("t")
        seen = sum(1 for _ in reader.read())
        assert seen >= first
        second = kill_writer(path, 30)
        reader.refresh()
        values = [record.value[:9] for record in reader.read()]
        assert len(values) >= second
        assert values == [b"%09d" % number for number in range(len(values))]
