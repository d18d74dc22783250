"""What a process that was killed leaves beside the live files of a log."""

from __future__ import annotations

from pathlib import Path

import klog
from klog.log import checkpoint
from klog.segment import names

FOREIGN = ("notes.tmp", "leader-epoch-checkpoint.tmp.old")


def test_files_that_were_to_replace_others_go_and_nobody_elses(tmp_path: Path) -> None:
    """S5: the temporary of Files.replace, in the partition and in its log.dir."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v")])
    partition = tmp_path / "t-0"
    ours = [tmp_path / f"{name}.tmp" for name in checkpoint.NAMES]
    live = ("leader-epoch-checkpoint", "partition.metadata", "klog-gaps", f"{1:020d}.snapshot", f"{0:020d}.txnindex")
    ours += [partition / f"{name}.tmp" for name in live]
    theirs = [partition / name for name in FOREIGN]
    for path in (*ours, *theirs):
        path.write_bytes(b"half")
    with klog.open(tmp_path, read_only=True) as logs:
        assert logs.log("t").count() == 1
    assert all(path.exists() for path in ours)
    with klog.open(tmp_path) as logs:
        assert logs.log("t").count() == 1
        assert [path.name for path in (*ours, *theirs) if path.exists()] == [*FOREIGN]


def test_what_is_temporary_is_told_by_its_name() -> None:
    assert names.is_temporary(f"{7:020d}.snapshot.tmp")
    assert not names.is_temporary(f"{7:020d}.snapshot")
    assert not names.is_temporary("x.tmp")
