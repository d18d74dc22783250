"""The step with the killed writer reports which records survived, and raises if a promise was broken."""

from __future__ import annotations

import subprocess

import pytest

import klog
from klog.demo import crash, demo_directory, writer
from klog.demo.child import python_module
from klog.demo.failure import DemoFailed
from tests.support.patience import PATIENCE


@pytest.fixture
def directory(tmp_path):
    """A demo directory with both topics, which are empty."""
    demo_directory.prepare(tmp_path)
    with klog.open(tmp_path) as logs:
        logs.create_topic(demo_directory.FLIGHTS)
        crash.create_topic(logs)
    return tmp_path


def append(directory, records):
    with klog.open(directory) as logs:
        logs.log(demo_directory.TELEMETRY).append(records)


def check(directory, acknowledged):
    with klog.open(directory) as logs:
        return crash.check(logs, crash.Kill(acknowledged, exit_signal=9))


def test_acknowledged_records_survive_a_real_kill(directory, monkeypatch):
    monkeypatch.setattr(crash, "APPENDS_BEFORE_KILL", 2)
    events = []
    kill = crash.kill_writer(directory, events.append)
    assert kill.exit_signal == 9
    assert kill.acknowledged >= 2 * writer.RECORDS_PER_APPEND
    result = check(directory, kill.acknowledged)
    assert result.found >= kill.acknowledged
    assert result.lost == 0
    assert result.segments_scanned > 0
    assert events[-1].done == events[-1].total


def test_records_beyond_the_acknowledged_are_counted(directory):
    append(directory, [writer.report(offset) for offset in range(10)])
    result = check(directory, acknowledged=7)
    assert (result.acknowledged, result.found, result.lost) == (7, 10, 0)


def test_a_partial_batch_is_truncated_and_reported(directory):
    append(directory, [writer.report(offset) for offset in range(10)])
    append(directory, [writer.report(offset) for offset in range(10, 20)])
    (path,) = (directory / f"{demo_directory.TELEMETRY}-0").glob("*.log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    for marker in directory.glob(".kafka_cleanshutdown"):
        marker.unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    result = check(directory, acknowledged=10)
    assert result.found == 10
    assert result.bytes_truncated > 10_000


def test_a_lost_record_raises(directory):
    append(directory, [writer.report(offset) for offset in range(10)])
    with pytest.raises(DemoFailed, match="11 records were acknowledged, 10 are in"):
        check(directory, acknowledged=11)


def test_a_changed_record_raises(directory):
    append(directory, [writer.report(0), writer.report(2)])
    with pytest.raises(DemoFailed, match=r"record 1 of .* is not what the writer appended"):
        check(directory, acknowledged=2)


def test_a_writer_that_fails_by_itself_raises(directory):
    with klog.open(directory), pytest.raises(DemoFailed, match="AlreadyLocked"):
        crash.kill_writer(directory, None)


def test_the_writer_ends_when_its_pipe_closes(directory):
    with python_module(
        "klog.demo.writer", str(directory), demo_directory.TELEMETRY, "100000", stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 1
