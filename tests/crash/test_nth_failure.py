"""The Nth file operation fails, for N = 1, 2, ... until a run has fewer operations: once, and permanently from then on.

Records whose append() returned are there after reopening; an append that raised is there whole or not at all; a failed
fsync takes the log offline, a full disk does not.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import InvalidProducerEpoch, StorageOffline
from klog.log.state.snapshots import snapshot_offsets
from tests.crash.opening import open_logs
from tests.crash.workload import CONFIG, TOPIC
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.failing_files import FailingFiles
from tests.support.faulty_io import FaultyIo


def run(path: Path, files: FailingFiles) -> tuple[list[bytes], list[list[bytes]]]:
    """Append groups of values. Returns (acknowledged values, groups whose append raised)."""
    acknowledged: list[bytes] = []
    refused: list[list[bytes]] = []
    logs = open_logs(path, files)
    try:
        logs.create_topic(TOPIC, config=CONFIG)
        log = logs.log(TOPIC)
        log.append([(None, b"first")])
        acknowledged.append(b"first")
        files.armed = True
        for number in range(14):
            values = [b"%d.%d" % (number, i) + b"y" * 60 for i in range(1 + number % 5)]
            before = log.log_end_offset
            try:
                log.append([(None, value) for value in values])
                acknowledged += values
            except StorageOffline:
                assert log.offline
                break
            except OSError:
                refused.append(values)
                assert log.log_end_offset == before
                left = set(snapshot_offsets(log.path)) - {segment.base_offset for segment in log.segments}
                assert log.offline or not left, f"producer snapshots of a roll that was undone: {left}"
                assert [record.value for record in log.read()] == acknowledged
            try:
                if number % 4 == 3:
                    log.flush()
            except (OSError, StorageOffline):
                assert log.offline, "a failed flush must be final"
                with pytest.raises(StorageOffline):
                    log.append([(None, b"no")])
                break
        assert [record.value for record in log.read()] == acknowledged
        files.armed = False
    finally:
        abandon(logs)
    return acknowledged, refused


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_every_failure_keeps_acknowledged_records(quick_path: Path, error: int, forever: bool) -> None:
    fail_everywhere(quick_path, error, forever=forever)


def fail_everywhere(place: Path, error: int, *, forever: bool) -> None:
    for nth in range(1, 2000):
        path = place / str(nth)
        files = FailingFiles(nth, error, forever=forever, torn=True, armed=False)
        acknowledged, _ = run(path, files)
        with klog.open(path) as logs:
            found = [record.value for record in logs.log(TOPIC).read()]
        assert found == acknowledged, f"nth={nth} failed={files.failed[:3]}"
        if not files.failed:
            assert nth > 30
            return
    raise AssertionError("no run had fewer operations")


def test_a_full_disk_fails_the_append_and_the_next_one_succeeds(tmp_path: Path) -> None:
    files = FailingFiles(1, errno.ENOSPC, torn=True, armed=False)
    with open_logs(tmp_path / "data", files) as logs:
        logs.create_topic(TOPIC)
        log = logs.log(TOPIC)
        log.append([(None, b"before")])
        files.armed = True
        with pytest.raises(OSError, match="No space"):
            log.append([(None, b"refused" * 100)])
        assert log.offline is None
        log.append([(None, b"after")])
        assert [record.value for record in log.read()] == [b"before", b"after"]


def test_a_failed_fsync_is_final_until_the_log_is_opened_again(tmp_path: Path) -> None:
    files = FailingFiles(1, errno.EIO, torn=True, armed=False)
    logs = open_logs(tmp_path / "data", files)
    logs.create_topic(TOPIC)
    log = logs.log(TOPIC)
    log.append([(None, b"kept")])
    files.armed = True
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    with pytest.raises(StorageOffline, match="open it again"):
        log.append([(None, b"no")])
    assert [record.value for record in log.read()] == [b"kept"]
    with pytest.raises(OSError, match="Input/output"):
        logs.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with klog.open(tmp_path / "data") as again:
        assert not again.log(TOPIC).recovery.clean_shutdown
        assert [record.value for record in again.log(TOPIC).read()] == [b"kept"]


# ---- the Nth system call ---------------------------------------------------------------------------------------------

_BEHIND = {"segment.bytes": 60_000, "klog.io.write.behind.bytes": 4096}
_DIRECT = {"segment.bytes": 400_000, "klog.io.write": "direct"}


class WritePolicy(NamedTuple):
    """A write policy, and values large enough that its appends make all of its system calls."""

    config: dict[str, object]
    value_bytes: int = 90
    durability: str = "os"


POLICIES = {
    "default": WritePolicy({}),
    "zeros": WritePolicy({"klog.io.preallocate": "zeros", "klog.io.preallocate.step.bytes": 4096}),
    "no blocks ahead": WritePolicy({"klog.io.preallocate": "none"}),
    "sync": WritePolicy({}, durability="sync"),
    "behind": WritePolicy(_BEHIND, 5000),
    "dontcache": WritePolicy({"klog.io.write": "dontcache"}),
    "direct": WritePolicy(_DIRECT, 70_000),
    "direct, behind, sync": WritePolicy({**_DIRECT, "klog.io.write.behind.bytes": 4096}, 70_000, "sync"),
}
REACHED = {  # system calls that a run must make, or its test would show nothing
    *(("pwrite", policy) for policy in POLICIES if policy != "dontcache"),
    *(("fsync", policy) for policy in POLICIES),
    ("fdatasync", "sync"),
    ("sync_file_range", "behind"),
    ("sync_file_range", "direct, behind, sync"),
    ("pwritev2", "dontcache"),
    ("fallocate", "default"),
}
CALLS = ("pwrite", "pwritev2", "fdatasync", "fsync", "ftruncate", "fallocate", "sync_file_range")
ERRORS = {"ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EIO": errno.EIO, "EINTR": errno.EINTR, "short": 0}


def life(
    path: Path, files: RealFiles, policy: WritePolicy, arm: Callable[[], object]
) -> tuple[list[bytes], list[bytes]]:
    """Run appends that roll, flushes and a clean stop, on a disk that fails after arm(). Returns the acknowledged
    values, and the values of an append whose own sync failed: all of them may be there when the log is opened again."""
    acknowledged: list[bytes] = []
    in_doubt: list[bytes] = []
    logs = open_logs(path, files, durability=policy.durability)
    try:
        logs.create_topic(TOPIC, config={**CONFIG, **policy.config})
        log = logs.log(TOPIC)
        log.append([(None, b"first")])
        acknowledged.append(b"first")
        arm()
        for number in range(8):
            values = [b"%d.%d" % (number, i) + b"y" * policy.value_bytes for i in range(1 + number % 4)]
            try:
                log.append([(None, value) for value in values])
                acknowledged += values
            except (OSError, StorageOffline) as error:
                assert log.log_end_offset == len(acknowledged)
                if policy.durability == "sync" and log.offline and not in_doubt:
                    in_doubt = values
                if isinstance(error, StorageOffline):
                    break
            if number % 3 == 2:
                with contextlib.suppress(OSError, StorageOffline):
                    log.flush()
        assert [record.value for record in log.read()] == acknowledged
        with contextlib.suppress(OSError):
            logs.close()
    finally:
        abandon(logs)
    return acknowledged, in_doubt


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("call", CALLS)
def test_the_nth_system_call_fails(quick_path: Path, tmp_path: Path, call: str, kind: str, policy: str) -> None:
    """F15, F19, F23: N = 1, 2, ... until a run makes fewer than N calls."""
    if kind == "short" and not call.startswith("pwrite"):
        return  # only writes can be short
    on_disk = "klog.io.write" in POLICIES[policy].config  # tmpfs has only the default write path
    if on_disk and kind in ("EDQUOT", "EINTR"):
        return  # this combination is similar to others, and slow on a disk
    place, stride = (tmp_path, 3) if on_disk else (quick_path, 1)
    with FaultyIo() as kernel:
        for nth in range(1, 200, stride):
            kernel.heal()
            path = place / str(nth)
            rules: list[int] = []

            def arm(nth: int = nth, rules: list[int] = rules) -> None:
                at_most = 3 if kind == "short" else -1
                rules.append(kernel.rule(call, error=ERRORS[kind], at_most=at_most, nth=nth, times=1))

            acknowledged, in_doubt = life(path, RealFiles(kernel.table), POLICIES[policy], arm)
            met = kernel.hits(rules[0])
            kernel.heal()
            with klog.open(path) as logs:
                log = logs.log(TOPIC)
                found = [record.value for record in log.read()]
                assert found in (acknowledged, acknowledged + in_doubt), f"nth={nth}"
                assert not [problem for problem in log.verify().problems if problem.kind != "leftover"]
            shutil.rmtree(path)
            if not met:
                assert nth > 1 or (call, policy) not in REACHED
                return
    raise AssertionError("no run had fewer calls")


# ---- encoded batches -------------------------------------------------------------------------------------------------


def send(log: klog.Log, number: int) -> list[bytes]:
    """Append encoded batches of each kind: client data, transactional data, its marker, a replicated batch."""
    values = [b"%d.%d" % (number, i) + b"y" * 60 for i in range(1 + number % 3)]
    end, kind = log.log_end_offset, number % 4
    if kind == 0:
        log.append_batches(batch(values))
    elif kind == 1:
        log.append_batches(transactional(1, number, 0, 2), leader_epoch=number)
        values = [b"v0", b"v1"]
    elif kind == 2:
        log.append_batches(marker(1, number - 1, "abort"), origin="coordinator")
        values = []
    else:
        data = batch(values, base_offset=end, leader_epoch=number)
        end += len(values)
        data += transactional(2, number, 0, 1, base_offset=end) + marker(2, number, "abort", base_offset=end + 1)
        log.append_batches(data, origin="replication")
        values.append(b"v0")
    return values


def run_encoded(path: Path, files: FailingFiles) -> list[bytes]:
    """Returns the acknowledged values, and those of an append whose transaction index could not be written: they are in
    the log, too."""
    acknowledged: list[bytes] = []
    logs = open_logs(path, files)
    try:
        logs.create_topic(TOPIC, config=CONFIG)
        log = logs.log(TOPIC)
        files.armed = True
        for number in range(16):
            before = log.log_end_offset, log.producers, log.aborted_transactions()
            try:
                acknowledged += send(log, number)
            except StorageOffline:
                assert log.offline
                acknowledged += [record.value for record in log.read(before[0])]
                break
            except InvalidProducerEpoch:
                pass  # its transaction failed on the disk
            except OSError:
                assert (log.log_end_offset, log.producers, log.aborted_transactions()) == before
                if log.offline:
                    break
        files.armed = False
        assert [record.value for record in log.read()] == acknowledged
    finally:
        abandon(logs)
    return acknowledged


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
def test_every_failure_of_an_encoded_append(quick_path: Path, forever: bool) -> None:
    for nth in range(1, 2000):
        path = quick_path / str(nth)
        files = FailingFiles(nth, errno.EIO, forever=forever, torn=True, armed=False)
        acknowledged = run_encoded(path, files)
        with klog.open(path, clock=ManualClock(NOW)) as logs:
            log = logs.log(TOPIC)
            found = [record.value for record in log.read()]
            assert found[: len(acknowledged)] == acknowledged, f"nth={nth} failed={files.failed[:3]}"
            # Whole leading batches of an append that could not be undone may be there.
            assert len(found) == len(acknowledged) or files.failed[:2] == ["write", "truncate"]
            committed = [record.value for record in log.read(isolation="read_committed")]
            assert b"v1" not in committed
            assert not [problem for problem in log.verify().problems if problem.kind != "leftover"]
        if not files.failed:
            assert nth > 30
            return
    raise AssertionError("no run had fewer operations")
