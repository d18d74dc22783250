"""What a new user tries first at the front door, and what it says when that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import klog
from klog.log import checkpoint


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log.dir that was stopped cleanly: its checkpoints say where the logs ended."""
    directory = tmp_path / "data"
    with klog.open(directory, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"old", b"0")])
    return directory


def _keys(records: Any) -> list[bytes]:
    return [record.key for record in records]


@pytest.mark.parametrize("alone", [False, True], ids=["manager", "log alone"])
def test_a_reader_who_came_before_the_writer_sees_what_it_appends(data: Path, alone: bool) -> None:
    """The checkpoint of the last stop bounds a reader only as long as it stands: the writer takes it away."""
    with klog.open(data, read_only=True) as there:
        log = klog.Log.open(data / "t-0", read_only=True) if alone else there.log("t")
        assert log.high_watermark == 1
        tail = log.tail("latest", timeout=0)
        with klog.open(data) as logs:
            logs.append("t", [(b"new", b"1")])
            assert _keys(tail) == [b"new"]
            logs.log("t").roll()
            logs.append("t", [(b"newer", b"2")])
            assert _keys(tail) == [b"newer"]
            assert (log.high_watermark, _keys(log.read())) == (3, [b"old", b"new", b"newer"])
        log.refresh()
        assert log.high_watermark == 3
        log.close()


def test_a_reader_follows_the_high_watermark_of_a_broker(data: Path) -> None:
    """A broker rewrites the checkpoint every few seconds; what lies above it is not replicated yet."""
    marks = data / checkpoint.HIGH_WATERMARK
    with klog.open(data) as logs:
        logs.append("t", [(b"1", b""), (b"2", b"")])
    marks.write_text("0\n1\nt 0 1\n")
    with klog.open(data, read_only=True) as logs, klog.Log.open(data / "t-0", read_only=True, high_watermark=2) as told:
        log = logs.log("t")
        tail = log.tail(0, timeout=0)
        assert _keys(tail) == [b"old"]
        marks.with_name("new").write_text("0\n1\nt 0 3\n")
        marks.with_name("new").rename(marks)
        assert _keys(tail) == [b"1", b"2"]
        marks.write_text("no checkpoint")
        log.refresh()
        assert log.high_watermark == 3
        told.refresh()
        assert told.high_watermark == 2  # given by the caller: no file changes it
