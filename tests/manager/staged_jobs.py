"""Jobs that stage files in a log.dir, and what it has then."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import Files
from klog.log.staged import layout, writers
from klog.log.staged.manifest import StagedFile
from klog.log.staged.writers import Driver, Machine
from klog.log.staged.writing import StagedWriter
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import commit_staged
from tests.crash.staged import Stop, StopsAtManifest

NOW = 1_700_000_000_000
DEFAULT = klog.LogConfig()
ELSEWHERE = Machine("another", "boot", "pids")


def log_dir_with_a_topic(path: Path) -> Path:
    """A log.dir with one topic of two partitions, three records in the first."""
    with klog.open(path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t").append([(b"k", b"old-%d" % n) for n in range(3)])
    return path


def stage(
    root: Path,
    token: str,
    records: dict[tuple[str, int], list[bytes]],
    *,
    task: int = 0,
    attempt: int = 0,
    config: klog.LogConfig = DEFAULT,
    process: Driver | None = None,
) -> list[StagedFile]:
    writer = StagedWriter(
        str(root), token, f"{task}-{attempt}", process or writers.driver(), clock=ManualClock(NOW + 1)
    )
    for (topic, partition), values in records.items():
        writer.append(topic, partition, [(b"k", value) for value in values], config, "lz4")
    return writer.finish()


def commit(root: Path, job: StagedJob, files: Files | None = None) -> dict[str, dict[int, tuple[int, int]]] | None:
    return commit_staged(str(root), job, clock=ManualClock(NOW + 2), files=files)


def job(token: str, files: list[StagedFile], **topics: TopicPlan) -> StagedJob:
    return StagedJob(token, files, topics or {"t": TopicPlan(2)})


def values(root: Path, topic: str = "t", partition: int = 0, *, read_only: bool = True) -> list[bytes]:
    with klog.open(root, read_only=read_only) as logs:
        return [record.value or b"" for record in logs.log(topic, partition).read()]


def staging(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*klog-*") if path.name != "klog-topics.json")


def interrupt(root: Path, job: StagedJob, state: str = "committed") -> Path:
    """Commit, and end the process after the manifest is written. Returns the path of the manifest."""
    with pytest.raises(Stop):
        commit(root, job, StopsAtManifest(state))
    return Path(layout.commit_path(str(root), job.token))
