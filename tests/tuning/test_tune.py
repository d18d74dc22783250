"""klog tune: profiles by workload, recommendations with measured numbers, and --apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import klog
from klog.cli import cli
from klog.clock import ManualClock
from klog.config import ManagerConfig
from klog.trial import Advice, Report, Result
from klog.tuning import PROFILES, Recommendation, Workload, apply, tune
from klog.tuning.recommend import DiskFigures, for_broker, for_topic
from klog.tuning.tune import figures_of
from tests.support.golden import HOME
from tests.support.terminal import answered


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    clock = ManualClock()
    with klog.open(tmp_path / "data", create=True, clock=clock) as logs:
        for topic in ("slow", "bulk", "middle", "empty"):
            logs.create_topic(topic, config={"segment.bytes": 1 << 20})
        for _ in range(100):
            logs.log("slow").append([(b"k", b"v" * 50)])
            logs.log("middle").append([(b"k", b"v" * 1000)] * 20)
            clock.advance(1000)
        for _ in range(50):
            logs.log("bulk").append([(b"k", b"v" * 1000)] * 100, compression="lz4")
            for _ in range(2):
                logs.log("bulk").append([(b"k", b"v" * 1000)] * 100)
            clock.advance(100)
    return tmp_path / "data"


def test_each_topic_gets_the_profile_of_its_batches(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    report = tune(data, disk=False)
    assert report.profiles == {"bulk": "high-throughput-writes", "slow": "low-latency", "middle": "balanced"}
    seen = {workload.topic: workload for workload in report.workloads}
    assert (seen["slow"].batch_records, seen["slow"].records, seen["slow"].compressed) == (1, 100, 0)
    assert seen["slow"].bytes_per_second == pytest.approx(seen["slow"].bytes / 99)
    assert 0 < seen["bulk"].compressed < 0.5 and seen["bulk"].segments > 3
    found = {each.key: each for each in report.recommendations if each.topic == "slow"}
    assert (found["flush.ms"].current, found["flush.ms"].recommended) == (str(2**63 - 1), "1000")
    assert found["segment.bytes"].recommended == str(256 << 20) and "a roll every" in found["segment.bytes"].effect
    assert any("empty is left out" in note for note in report.notes) and report.disk is None
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    assert set(tune(data, disk=False, profile="high-throughput-reads").profiles.values()) == {"high-throughput-reads"}
    with pytest.raises(ValueError, match="profile='fast'"):
        tune(data, disk=False, profile="fast")


def test_a_broker_s_topics_have_no_known_configuration_and_internal_ones_are_left_out(data: Path) -> None:
    report = tune(HOME / "internal" / "logdir", disk=False)
    assert [workload.topic for workload in report.workloads] == ["clicks"]
    assert {each.current for each in report.recommendations if each.topic} == {None}
    assert {each.key for each in report.recommendations if each.topic} == set(PROFILES["low-latency"].settings)
    assert "left out: __cluster_metadata, __consumer_offsets, __transaction_state" in report.notes[0]
    shown = CliRunner().invoke(cli, ["tune", str(HOME / "internal" / "logdir"), "--no-disk"]).output
    assert "flush.ms: unknown → 1000" in shown and "with 1 record;" in shown and shown.count("why: profile") == 1
    assert "flush.ms: never → 1000" in CliRunner().invoke(cli, ["tune", str(data), "--no-disk"]).output


def test_applied_recommendations_are_not_given_again(data: Path) -> None:
    report = tune(data, disk=False)
    with klog.open(data) as logs:
        changed = apply(logs, report)
        assert changed["slow"]["index.interval.bytes"] == "1024"
        assert logs.topic_config("slow").flush_ms == 1000 and logs.topic_config("bulk").preallocate
    assert [each for each in tune(data, disk=False).recommendations if each.topic is not None] == []


def workload(**changes: object) -> Workload:
    fine = Workload("t", 2, 10 << 30, 10_000_000, 40, 1 << 20, 100, 10_000.0, 10.0, 1000.0, 2e6, None, 0.0)
    return replace(fine, **changes)  # type: ignore[arg-type]


def of_topic(disk: DiskFigures | None) -> dict[str, Recommendation]:
    found = for_topic(workload(), PROFILES["low-latency"], "why", klog.LogConfig(), disk)
    return {each.key: each for each in found}


def test_a_slow_disk_is_flushed_less_often_than_the_profile_states() -> None:
    assert of_topic(DiskFigures(5.0, 1e8, {}))["flush.ms"].recommended == "1000"
    assert "5.00 ms, 0.50% of the time" in of_topic(DiskFigures(5.0, 1e8, {}))["flush.ms"].effect
    assert of_topic(DiskFigures(300.0, 1e8, {}))["flush.ms"].recommended == "3000"


def test_settings_that_the_measurement_favours_are_recommended() -> None:
    results = [
        Result("append 64 KiB", "buffered", {}, {"MB/s to the disk": 200.0, "MB/s append": 300.0}, 1.0, 1.0, 1),
        Result("durable append 4 KiB", "1 thread", {}, {"appends/s": 100.0, "p50 ms": 7.5}, 1.0, 1.0, 1),
    ]
    advice = [
        Advice("klog.io.preallocate=none", "1.50 times"),
        Advice("klog.io.write=direct for bulk loads", "only for those"),
        Advice("klog.io.read.ahead.bytes=4194304 for logs that are scanned cold", "only for those"),
    ]
    figures = figures_of(Report("d", results, 1, 1.0, advice=advice))
    assert figures == DiskFigures(7.5, 200e6, {"klog.io.preallocate": ("none", "1.50 times")})
    found = of_topic(figures)["klog.io.preallocate"]
    assert (found.current, found.recommended, found.effect) == ("steps", "none", "1.50 times")
    assert "5.1 minutes" not in found.effect and "klog.io.write" not in of_topic(figures)


def test_a_compacted_topic_with_many_records_needs_a_larger_key_map() -> None:
    small, large = ManagerConfig({"log.cleaner.dedupe.buffer.size": 1 << 20}), ManagerConfig({})
    found = {each.key: each for each in for_broker([workload()], ["t"], small, 1)}
    needed = found["log.cleaner.dedupe.buffer.size"]
    assert int(needed.recommended) == round(10_000_000 * 24 / small.log_cleaner_io_buffer_load_factor)
    assert needed.topic is None and "10,000,000 records" in needed.reason
    assert not list(for_broker([workload()], [], small, 1))
    assert not list(for_broker([workload(records=1000)], ["t"], large, 1))
    threads = ManagerConfig({"num.recovery.threads.per.data.dir": 1})
    assert [each.recommended for each in for_broker([workload()], [], threads, 8)] == ["2"]


def test_the_verb_asks_before_it_applies(data: Path) -> None:
    run = CliRunner().invoke
    shown = run(cli, ["tune", str(data), "--no-disk"])
    assert shown.exit_code == 0 and "slow: low-latency" in shown.output and "      why: profile" in shown.output
    code, _, text = answered("n\n", "tune", data, "--no-disk", "--apply")
    assert code == 1 and "settings of topics? [y/N]" in text and "nothing was changed" in text
    unasked = run(cli, ["tune", str(data), "--no-disk", "--apply"], input="y\n")
    assert unasked.exit_code == 2 and "no terminal to ask on: add --yes" in unasked.output
    planned = json.loads(run(cli, ["tune", str(data), "--no-disk", "--apply", "--dry-run", "--json"]).output)
    assert planned["applied"] == {} and planned["recommendations"] and "server_properties" in planned
    assert run(cli, ["tune", str(data), "--no-disk", "--apply", "--json"]).exit_code == 2
    done = json.loads(run(cli, ["tune", str(data), "--no-disk", "--apply", "--yes", "--json"]).output)
    assert done["applied"]["slow"]["flush.ms"] == "1000"
    with klog.open(data, read_only=True) as logs:
        assert logs.topic_config("slow").flush_ms == 1000
