"""klog top: rates between two samples, lags, devices, and a live table that ends cleanly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import klog
from klog.cli import cli
from klog.cli.top import columns_for
from klog.clock import ManualClock
from klog.inspect.activity import ActivityWatcher
from klog.internal_topics import encode_key, encode_value
from tests.support.fake_kernel import FakeKernel
from tests.support.golden import HOME

ROOT = Path(klog.__file__).resolve().parent.parent


def test_rates_are_those_between_two_samples(tmp_path: Path) -> None:
    clock, kernel = ManualClock(), FakeKernel(tmp_path)
    with klog.open(kernel.log_dir, create=True, clock=clock) as logs:
        logs.create_topic("t", partitions=2, config={"segment.bytes": 100_000})
        log = logs.log("t", 0)
        for _ in range(20):
            log.append([(b"k", b"v" * 100)] * 100)
        with ActivityWatcher(kernel.log_dir, clock=clock, proc_root=str(kernel.proc)) as watcher:
            first = watcher.sample()
            assert first.seconds is None and {each.bytes_per_second for each in first.partitions} == {None}
            size = log.size
            clock.advance(4000)
            for _ in range(20):  # rolls
                log.append([(b"k", b"v" * 100)] * 100)
            appended = log.size - size
            log.delete_records(1800)
            assert log.apply_retention() > 0  # deletes segments before the one that grew
            reader = logs.reader("t", "billing")
            next(iter(reader))
            reader.commit()
            logs.create_topic("new")
            kernel.device("[none]", busy_ms=70 + 1000, queue_ms=80 + 8000, written_sectors=60 + 8)
            found = watcher.sample()
            by_name = {(each.topic, each.partition): each for each in found.partitions}
            busy = by_name["t", 0]
            assert (busy.records_per_second, busy.bytes_per_second) == (2000 / 4, appended / 4)
            assert (busy.log_end_offset, busy.size, busy.segments) == (4000, log.size, len(log.segments))
            assert busy.lag == {"billing": 4000 - 1801}
            assert by_name["t", 1].records_per_second == 0 and by_name["new", 0].records_per_second is None
            (device,) = found.devices
            assert (device.utilisation, device.queue_length) == (0.25, 2.0)
            assert device.written_bytes_per_second == 8 * 512 / 4 and not found.problems
            clock.advance(1000)
            log.append([(b"k", b"v")])
            log.roll()
            log.delete_records(-1)
            log.apply_retention()
            (quiet,) = (each for each in watcher.sample().partitions if (each.topic, each.partition) == ("t", 0))
            assert quiet.bytes_per_second is None and quiet.records_per_second == 1  # the segment that grew is deleted
            assert quiet.lag == {"billing": 0}
            logs.delete_topic("new")
            assert ("new", 0) not in {(each.topic, each.partition) for each in watcher.sample().partitions}


def test_lags_of_kafka_s_groups_and_shares_of_the_cache(tmp_path: Path) -> None:
    shutil.copytree(HOME / "internal" / "logdir", tmp_path / "data")
    with ActivityWatcher(tmp_path / "data") as watcher:
        found = {(each.topic, each.partition): each for each in watcher.sample().partitions}
        assert found["clicks", 1].group_lag == {"group-consumer0": 24, "group-consumer1": 24}
        assert found["clicks", 0].group_lag["group-txn"] == 68 and found["clicks", 0].lag == {}
        assert all(each.cached_share is None or each.cached_share <= 1 for each in found.values())
        key = encode_key("offset_commit", group="group-txn", topic="clicks", partition=0)
        with klog.Log.open(tmp_path / "data" / "__consumer_offsets-0") as log:
            log.append([(key, encode_value("offset_commit", 3, offset=77))])
        again = {(each.topic, each.partition): each for each in watcher.sample().partitions}
        assert again["clicks", 0].group_lag["group-txn"] == 1
    shown = CliRunner().invoke(cli, ["top", str(tmp_path / "data"), "--once", "--interval", "0.01"])
    assert "24  group-consumer0" in shown.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t").append([(b"k", b"v")] * 5)
    return tmp_path / "data"


def test_a_topic_that_is_deleted_meanwhile_is_left_out(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ActivityWatcher(data) as watcher:
        there = [(each.topic, each.partition) for each in watcher.sample().partitions]
        topics = klog.LogManager.topics
        monkeypatch.setattr(klog.LogManager, "topics", lambda self: {"gone": (0,), **topics(self)})
        found = watcher.sample()
        assert [(each.topic, each.partition) for each in found.partitions] == there and found.problems == {}


def test_once_shows_one_interval(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    found = json.loads(CliRunner().invoke(cli, ["top", str(data), "--once", "--json", "--interval", "0.05"]).output)
    assert found.keys() == {"seconds", "partitions", "devices", "problems"} and found["seconds"] >= 0.05
    assert [each["log_end_offset"] for each in found["partitions"]] == [5, 0]
    shown = CliRunner().invoke(cli, ["top", str(data), "--once", "--interval", "0.05"])
    assert shown.exit_code == 0 and "RECORDS/S" in shown.output and "LAG" in shown.output
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_a_damaged_file_of_a_reader_is_reported_and_hides_no_other_lag(data: Path) -> None:
    with klog.open(data, read_only=True) as logs:
        for name in ("billing", "broken"):
            with logs.reader("t", name, partition=0) as reader:
                reader.seek(3)
    (data / "klog-reader.broken.json").write_text("{")
    with ActivityWatcher(data) as watcher:
        found = watcher.sample()
        assert {each.partition: each.lag for each in found.partitions} == {0: {"billing": 2}, 1: {"billing": 0}}
        (name,) = found.problems
        assert name == "reader broken" and "klog-reader.broken.json" in found.problems[name]
    shown = CliRunner().invoke(cli, ["top", str(data), "--once", "--interval", "0.01"])
    assert "reader broken" in shown.output


def test_ctrl_c_ends_it_without_an_error(data: Path) -> None:
    command = [sys.executable, "-m", "klog.cli", "top", str(data), "--json", "--interval", "0.05"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as top:
        assert top.stdout is not None and top.stderr is not None
        assert [json.loads(top.stdout.readline())["seconds"] > 0 for _ in range(2)] == [True, True]
        top.send_signal(signal.SIGINT)
        rest, errors = top.stdout.read(), top.stderr.read()
    assert top.returncode == 0 and errors == "" and all(json.loads(line) for line in rest.splitlines())


def test_a_narrow_terminal_has_fewer_columns() -> None:
    assert columns_for(200)[-2:] == ["LAG", "READER"] and len(columns_for(200)) == 10
    assert "SEGMENTS" not in columns_for(100) and columns_for(72)[-1] == "READER"
    assert columns_for(60) == ["TOPIC", "PARTITION", "RECORDS/S", "BYTES/S", "LAG"]
    assert columns_for(45) == ["TOPIC", "PARTITION", "RECORDS/S", "LAG"]
