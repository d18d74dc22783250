"""Every check finds the problem that the test has made: in a fake /proc and /sys, in the facts of an engine, and in real
log directories."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk.device import DiskSpace, device_counters, device_number, mount_of
from klog.health import CHECKS, Engine, Finding, HealthReport, LogFacts, Machine, examine, read_machine
from klog.manager.catalog import TopicCatalog
from tests.support.fake_kernel import FakeKernel

GIB = 1 << 30
NOW = 1_700_000_000_000


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    return FakeKernel(tmp_path)


def engine(**changes: object) -> Engine:
    fine = Engine(
        read_only=False,
        now_ms=NOW,
        offline={},
        logs=[LogFacts("t-0", 3, NOW, 100), LogFacts("u-0", 1, NOW - 5, 0)],
        dead_threads=0,
        flushes=5,
        flush_mean_ms=3.0,
        flush_rate=1.0,
        sampled_bytes=32 << 20,
        cached_bytes=32 << 20,
    )
    return replace(fine, **changes)  # type: ignore[arg-type]


def seen(kernel: FakeKernel, free: float = 0.5, free_inodes: float = 0.5) -> Machine:
    """What the fake kernel shows, with a file system of this free space."""
    machine = read_machine([str(kernel.log_dir)], kernel.pid, proc_root=str(kernel.proc), sys_root=str(kernel.sys))
    space = DiskSpace(100 * GIB, int(free * 100 * GIB), 1000, int(free_inodes * 1000))
    return replace(machine, directories=(replace(machine.directories[0], space=space),))


def one(report: HealthReport, check: str) -> Finding:
    (found,) = (finding for finding in report.findings if finding.check == check)
    return found


def test_a_healthy_machine_passes_every_check(kernel: FakeKernel) -> None:
    report = examine(seen(kernel), engine())
    assert report.severity == "ok" and {finding.check for finding in report.findings} == set(CHECKS)
    assert not report.unknown and not any(finding.next_step for finding in report.findings)


ENGINES: dict[str, list[tuple[str, Engine]]] = {
    "log_readable": [("critical", engine(logs=[LogFacts("t-0", problem="torn")]))],
    "log_end": [("critical", engine(logs=[LogFacts("t-0", 1, NOW, 0, offsets_missing=3)]))],
    "cleanable": [("warning", engine(logs=[LogFacts("t-0", 1, NOW, 0, uncleanable="bad crc")]))],
    "cleaner_threads": [("critical", engine(dead_threads=1))],
    "flush_time": [("warning", engine(flush_mean_ms=100.0)), ("critical", engine(flush_mean_ms=1000.0))],
    "flush_rate": [("warning", engine(flush_rate=1000.0))],
    "segments": [
        ("warning", engine(logs=[LogFacts("t-0", 1000, NOW, 0)])),
        ("critical", engine(logs=[LogFacts("t-0", 10_000, NOW, 0)])),
    ],
    "unflushed_bytes": [("warning", engine(logs=[LogFacts("t-0", 1, NOW, 2 * GIB)]))],
    "timestamps": [("warning", engine(logs=[LogFacts("t-0", 1, NOW + 3_600_000, 0)]))],
    "page_cache": [("warning", engine(cached_bytes=28 << 20))],
}


@pytest.mark.parametrize("check", ENGINES)
def test_the_engine_is_examined(kernel: FakeKernel, check: str) -> None:
    for severity, facts in ENGINES[check]:
        found = one(examine(seen(kernel), facts), check)
        assert (found.severity, found.next_step) == (severity, CHECKS[check].next_step)
        if found.threshold is not None:
            assert found.threshold == getattr(CHECKS[check], severity)
    only_just = {
        "flush_time": engine(flush_mean_ms=99.9),
        "flush_rate": engine(flush_rate=999.9),
        "segments": engine(logs=[LogFacts("t-0", 999, NOW, 0)]),
        "unflushed_bytes": engine(logs=[LogFacts("t-0", 1, NOW, 2 * GIB - 1)]),
        "timestamps": engine(logs=[LogFacts("t-0", 1, NOW + 3_599_999, 0)]),
        "page_cache": engine(cached_bytes=29 << 20),
    }
    if check in only_just:
        assert one(examine(seen(kernel), only_just[check]), check).severity == "ok"


def test_many_logs_with_one_problem_are_counted(kernel: FakeKernel) -> None:
    logs = [LogFacts(f"t-{number}", 5000 + number, NOW, 0) for number in range(50)]
    found = [each for each in examine(seen(kernel), engine(logs=logs)).findings if each.check == "segments"]
    assert len(found) == 21 and found[0].subject == "t-49" and found[-1].subject == "30 more logs"


def test_an_offline_directory_is_critical(kernel: FakeKernel) -> None:
    path = str(kernel.log_dir)
    found = one(examine(seen(kernel), engine(offline={path: "EIO"})), "log_directory")
    assert (found.severity, found.subject, found.message) == ("critical", path, "EIO")
    gone = examine(read_machine([path + "x"], None, proc_root=str(kernel.proc), sys_root=str(kernel.sys)), engine())
    assert one(gone, "log_directory").severity == "critical" and "descriptors" in gone.unknown


@pytest.mark.parametrize(
    ("check", "severity", "space"),
    [
        ("disk_space", "ok", (0.151, 0.5)),
        ("disk_space", "warning", (0.149, 0.5)),
        ("disk_space", "critical", (0.049, 0.5)),
        ("inodes", "warning", (0.5, 0.15)),
        ("inodes", "critical", (0.5, 0.05)),
    ],
)
def test_space_is_examined(kernel: FakeKernel, check: str, severity: str, space: tuple[float, float]) -> None:
    assert one(examine(seen(kernel, *space), engine()), check).severity == severity


MACHINES: dict[str, list[tuple[str, Callable[[FakeKernel], object]]]] = {
    "descriptors": [
        ("warning", lambda kernel: kernel.process(open_files=8, limit=10)),
        ("critical", lambda kernel: kernel.process(open_files=10, limit=10)),
    ],
    "maps": [("warning", lambda kernel: kernel.process(maps=80)), ("critical", lambda kernel: kernel.process(maps=96))],
    "file_system": [("warning", lambda kernel: kernel.mount("nfs4", "rw"))],
    "mount_options": [
        ("warning", lambda kernel: kernel.mount("ext4", "rw,strictatime")),
        ("critical", lambda kernel: kernel.mount("ext4", "rw,nobarrier")),
        ("critical", lambda kernel: kernel.mount("ext4", "ro")),
    ],
    "io_scheduler": [("warning", lambda kernel: kernel.device("none mq-deadline [bfq]"))],
    "dirty_pages": [
        ("warning", lambda kernel: kernel.memory(dirty_kib=820 * 4)),
        ("critical", lambda kernel: kernel.memory(dirty_kib=1000 * 4)),
    ],
    "dirty_background": [("warning", lambda kernel: kernel.vm(dirty_background_ratio=20))],
    "swappiness": [("warning", lambda kernel: kernel.vm(swappiness=60))],
    "memory": [
        ("warning", lambda kernel: kernel.memory(available_kib=99_000)),
        ("critical", lambda kernel: kernel.memory(available_kib=50_000)),
    ],
}


@pytest.mark.parametrize("check", MACHINES)
def test_the_machine_is_examined(kernel: FakeKernel, check: str) -> None:
    assert one(examine(seen(kernel), engine()), check).severity == "ok"
    for severity, plant in MACHINES[check]:
        plant(kernel)
        report = examine(seen(kernel), engine())
        found = one(report, check)
        assert (found.severity, found.next_step) == (severity, CHECKS[check].next_step)
        assert report.severity == severity and report.findings[0] is found


def test_a_machine_that_shows_nothing_has_unknown_checks(tmp_path: Path) -> None:
    machine = read_machine([str(tmp_path)], 1, proc_root=str(tmp_path / "none"), sys_root=str(tmp_path / "none"))
    report = examine(machine, engine())
    assert set(report.unknown) >= {"memory", "maps", "descriptors", "file_system", "io_scheduler", "dirty_pages"}
    assert all(report.unknown.values())


def test_mounts_and_devices_are_read(kernel: FakeKernel, tmp_path: Path) -> None:
    found = mount_of(str(kernel.log_dir), str(kernel.proc))
    assert found is not None and (found.file_system, found.source) == ("ext4", "/dev/sda1")
    for name in ("a b", "données", "a\u2028b"):
        (tmp_path / name).mkdir()
        kernel.mount("xfs", "rw", str(tmp_path / name).replace(" ", r"\040"))
        assert mount_of(str(tmp_path / name / "c"), str(kernel.proc)).file_system == "xfs"  # type: ignore[union-attr]
    counters = device_counters(device_number(str(kernel.log_dir)), str(kernel.proc))
    assert counters is not None and (counters.read_bytes, counters.busy_ms, counters.queue_ms) == (512 * 20, 70, 80)


def test_a_manager_reports_what_is_planted(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with klog.open(tmp_path / "data", create=True, clock=clock) as logs:
        logs.create_topic("future", config={"message.timestamp.after.max.ms": 1 << 62})
        logs.log("future").append([(b"k", b"v", NOW + 10_000_000)])
        logs.create_topic("damaged")
        for _ in range(2):
            logs.log("damaged").append([(b"k", b"v")])
        report = logs.health()
        found = next(finding for finding in report.findings if finding.check == "timestamps")
        assert (found.severity, found.subject, found.value) == ("warning", "future-0", 10_000_000)
        assert one(report, "descriptors").subject == f"process {os.getpid()}"
        with klog.open(tmp_path / "data", read_only=True, clock=clock) as reader:
            outside = reader.health()
        assert one(outside, "descriptors").subject == f"process {os.getpid()}"  # from .lock
        assert {"flush_rate", "cleanable", "unflushed_bytes"} <= set(outside.unknown)
    (tmp_path / "data" / ".lock").write_text("pid=1 start=5\n")  # of a process that has ended
    with klog.open(tmp_path / "data", read_only=True, clock=clock) as reader:
        assert "no klog process" in reader.health().unknown["descriptors"]
    segment = tmp_path / "data" / "damaged-0" / f"{0:020}.log"
    segment.unlink()
    segment.symlink_to(segment.name)
    with klog.open(tmp_path / "data", read_only=True, clock=clock) as reader:
        report = reader.health()
    assert [each.subject for each in report.findings if each.check == "log_readable"] == ["damaged-0"]
    assert report.severity == "critical" and report.to_dict()["findings"][0]["next_step"]


def test_a_log_without_its_last_segment_is_reported(tmp_path: Path) -> None:
    for severity in ("ok", "critical"):
        with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
            if severity == "ok":
                logs.create_topic("t")
                logs.log("t").append([(b"k", b"v")] * 3)
                logs.log("t").roll()
                logs.log("t").append([(b"k", b"v")] * 2)
            assert logs.log("t").log_end_offset == (5 if severity == "ok" else 3)
            found = one(logs.health(), "log_end")
            assert found.severity == severity
        (tmp_path / "t-0" / f"{3:020}.log").unlink(missing_ok=True)
    assert (found.subject, found.message) == ("t-0", "2 flushed offsets were missing")


def test_a_reader_reports_a_log_without_its_last_segment(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t")
        for _ in range(2):
            logs.log("t").append([(b"k", b"v")] * 2)
            logs.log("t").roll()
        logs.log("t").append([(b"k", b"v")])
    for severity in ("ok", "critical"):
        with klog.open(tmp_path, read_only=True, clock=ManualClock(NOW)) as reader:
            assert one(reader.health(), "log_end").severity == severity
        (tmp_path / "t-0" / f"{4:020}.log").unlink(missing_ok=True)


def test_a_topic_that_is_deleted_meanwhile_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
    monkeypatch.setattr(TopicCatalog, "topics", lambda self: {"gone": (0,), "t": (0,)})
    with klog.open(tmp_path / "data", read_only=True) as reader:
        assert one(reader.health(), "log_readable").severity == "ok"


def test_the_thresholds_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    for name, check in CHECKS.items():
        bounds = " | ".join("" if bound is None else f"{bound:,}" for bound in (check.warning, check.critical))
        assert f"| `{name}` | {check.what} | {check.unit} | {bounds} |" in page
