"""A staged job over three topics: it appends to one, overwrites one, and creates one. A commit that stops at any point
must leave all of the job or nothing. Readers see that at once, and the next start removes the leftovers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import klog
from klog.clock import ManualClock
from klog.disk import Files, RealFiles
from klog.inspect.verify import verify
from klog.log.staged.manifest import StagedFile
from klog.log.staged.writers import Driver, announce, this_machine
from klog.log.staged.writing import StagedWriter
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import commit_staged
from tests.support.failing_files import FailingFiles

NOW = 1_700_000_000_000
TOKEN = "job-1"
QUERY = "query"
Content = dict[str, list[list[bytes]]]
CONFIG = {"internal.segment.bytes": 700, "segment.index.bytes": 200}
PLANS = {
    "appended": TopicPlan(2),
    "overwritten": TopicPlan(2),
    "created": TopicPlan(2, config={"retention.ms": -1, "segment.index.bytes": 200}, is_new=True),
}
OLD: Content = {
    "appended": [[b"old-%d" % n for n in range(5)], []],
    "overwritten": [[b"gone-%d" % n for n in range(30)], [b"gone"]],
}
NEW: Content = {
    "appended": [[*OLD["appended"][0], *(b"0-%d" % n for n in range(30)), *(b"1-%d" % n for n in range(30))], []],
    "overwritten": [[], [*(b"0-%d" % n for n in range(30)), *(b"1-%d" % n for n in range(30))]],
    "created": [[], [*(b"0-%d" % n for n in range(30)), *(b"1-%d" % n for n in range(30))]],
}
TARGETS = [("appended", 0), ("overwritten", 1), ("created", 1)]


class Stop(BaseException):
    """The process ends here."""


class StopsAtManifest(FailingFiles):
    """Ends the process after the manifest with this state was written."""

    def __init__(self, state: str = "committed") -> None:
        super().__init__(armed=False)
        self.state = state.encode()

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        super().replace(path, data, private=private)
        if "klog-commit-" in path and b'"%s"' % self.state in data:
            raise Stop


def ended(start: int = 1) -> Driver:
    """The driver of a job whose process has ended: its leftovers may be removed. start: tells such processes apart."""
    return Driver(this_machine(), os.getpid(), start)


def as_after_a_restart(root: Path) -> None:
    """Make private files private again, since a crash state has no file modes. Let the process of each staged job be
    one that has ended."""
    for path in root.glob("klog-*.json"):
        path.chmod(0o600)
    for path in root.glob("klog-staging-*.json"):
        path.unlink()
        announce(str(root), path.stem.removeprefix("klog-staging-"), ended(2), RealFiles())


def fill(root: Path, files: Files | None = None) -> None:
    with klog.open(root, create=True, clock=ManualClock(NOW), files=files) as logs:
        for topic, partitions in OLD.items():
            logs.create_topic(topic, partitions=len(partitions), config=CONFIG)
            for number, values in enumerate(partitions):
                for value in values:
                    logs.log(topic, number).append([(b"k", value)])


def stage(
    root: Path,
    files: Files | None = None,
    token: str = TOKEN,
    targets: Iterable[tuple[str, int]] = TARGETS,
    attempt: int = 7,
) -> StagedJob:
    staged: list[StagedFile] = []
    for task in range(2):
        writer = StagedWriter(str(root), token, f"{task}-{attempt}", ended(), files=files, clock=ManualClock(NOW))
        for topic, partition in targets:
            for first in (0, 15):
                records = [(b"k", b"%d-%d" % (task, n)) for n in range(first, first + 15)]
                writer.append(topic, partition, records, klog.LogConfig(CONFIG))
        staged += writer.finish()
    return StagedJob(token, staged, PLANS, frozenset({"overwritten"}), (QUERY, 3))


def commit(root: Path, job: StagedJob, files: Files | None = None) -> None:
    commit_staged(str(root), job, clock=ManualClock(NOW), files=files)


def content(root: Path, *, read_only: bool, recovery: str = "strict") -> Content:
    with klog.open(root, read_only=read_only, clock=ManualClock(NOW), recovery=recovery) as logs:  # type: ignore[arg-type]
        return {
            topic: [[record.value or b"" for record in logs.log(topic, number).read()] for number in partitions]
            for topic, partitions in logs.topics().items()
        }


def leftovers(root: Path) -> list[str]:
    """Every file that exists only while a job runs."""
    found = [path for path in root.rglob("*") if path.name.startswith((".klog-staging-", "klog-commit-"))]
    found += [path for path in root.rglob("*") if path.name.startswith("klog-staging-") or path.suffix == ".tmp"]
    found += [path for path in root.iterdir() if path.is_dir() and not any(path.iterdir())]
    return [str(path.relative_to(root)) for path in found]


def check(root: Path) -> bool:
    """Check the log.dir after a stop. Returns whether the job was committed."""
    seen = content(root, read_only=True)
    assert seen in (OLD, NEW)
    found = content(root, read_only=False)
    assert found in (OLD, NEW)
    assert seen == OLD or found == NEW, "a reader saw records that then were gone"
    assert leftovers(root) == []
    assert not [problem for problem in verify(root).problems if problem.kind != "leftover"]
    assert content(root, read_only=True) == content(root, read_only=False) == found
    return found == NEW
