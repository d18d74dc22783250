"""T3: strace makes calls of the real kernel fail, below every layer of klog: F1, F15, F19, F20, F21, F23.

The writer runs alone in a process under strace, and prints the result of each call. Then the parent opens the log.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import klog

WRITER = """
import sys, klog
logs = klog.open(sys.argv[1])
log = logs.log("t")

def tell(what, call):
    try:
        found = call()
    except OSError as error:
        found = f"{type(error).__name__} {error.errno} {'.log' in str(error)}"
    except klog.errors.KlogError as error:
        found = type(error).__name__
    print(what, found, bool(log.offline), flush=True)

def append(value):
    log.append([(b"k", value)])
    return "done"

tell("append", lambda: append(b"one"))
tell("append", lambda: append(b"two"))
tell("flush", lambda: log.flush() or "done")
tell("append", lambda: append(b"three"))
tell("read", lambda: len(list(log.read())))
tell("read", lambda: len(list(log.read())))
logs.abandon()
"""


def traced(path: Path, calls: str, what: str) -> tuple[list[str], int]:
    """Inject `what` into these calls on the .log. Returns the writer's lines and its exit status."""
    if shutil.which("strace") is None:
        pytest.skip("needs: strace")
    with klog.open(path, create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"zero")])
    log = path / "t-0" / f"{0:020d}.log"
    command = ["strace", "-f", "-qq", "-o", str(path.parent / "trace"), "-P", str(log)]
    command += ["-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    done = subprocess.run([*command, sys.executable, "-c", WRITER, str(path)], capture_output=True, text=True)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("needs: permission for ptrace(2)")
    assert done.returncode in (0, 137, -9), done.stderr
    trace = (path.parent / "trace").read_text()
    assert "INJECTED" in trace or "killed" in trace, f"nothing was injected:\n{trace}"
    return done.stdout.splitlines(), done.returncode


def values(path: Path) -> list[bytes | None]:
    with klog.open(path) as logs:
        log = logs.log("t")
        found = [record.value for record in log.read()]
        assert log.append([(b"k", b"after")]).first_offset == len(found)
        assert [problem for problem in log.verify().problems if problem.kind != "leftover"] == []
    return found


def test_a_full_disk_fails_one_append(tmp_path: Path) -> None:
    """F15"""
    lines, _ = traced(tmp_path / "d", "pwrite64", "error=ENOSPC:when=1")
    assert lines == [
        "append OSError 28 True False", "append done False", "flush done False", "append done False", "read 3 False",
        "read 3 False",
    ]  # fmt: skip
    assert values(tmp_path / "d") == [b"zero", b"two", b"three"]


@pytest.mark.parametrize(
    ("calls", "errno"), [("pwrite64", "EIO"), ("fsync,fdatasync", "EIO"), ("fsync,fdatasync", "ENOSPC")]
)
def test_a_broken_disk_takes_the_log_offline(tmp_path: Path, calls: str, errno: str) -> None:
    """F19, S2: readers still work."""
    lines, _ = traced(tmp_path / "d", calls, f"error={errno}:when=1")
    words = [line.split() for line in lines]
    failed = next(number for number, line in enumerate(words) if line[1] in ("OSError", "FailedSync"))
    assert all(line[-1] == "True" for line in words[failed:])
    assert all(line[1] == "StorageOffline" for line in words[failed + 1 :] if line[0] != "read")
    acknowledged = [b"zero", b"one", b"two", b"three"][: 1 + sum(line[:2] == ["append", "done"] for line in words)]
    assert words[-1][:2] == ["read", str(len(acknowledged))]
    assert values(tmp_path / "d") == acknowledged


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_kill_before_a_write_lands(tmp_path: Path, nth: int) -> None:
    """F1"""
    lines, status = traced(tmp_path / "d", "pwrite64", f"signal=KILL:when={nth}")
    assert status != 0
    acknowledged = [b"zero", b"one", b"two", b"three"][: 1 + sum(line.startswith("append done") for line in lines)]
    found = values(tmp_path / "d")
    assert found[: len(acknowledged)] == acknowledged and len(found) <= len(acknowledged) + 1


def test_an_unreadable_page_fails_one_read(tmp_path: Path) -> None:
    """F20: the log stays open."""
    lines, _ = traced(tmp_path / "d", "pread64,preadv2", "error=EIO:when=3+")
    words = [line.split() for line in lines]
    assert all(line[1] in ("4", "ReadFailed") for line in words if line[0] == "read")
    assert values(tmp_path / "d")[:1] == [b"zero"]


def test_interrupted_calls_are_continued(tmp_path: Path) -> None:
    """F23"""
    lines, _ = traced(tmp_path / "d", "pwrite64,ftruncate,fallocate", "error=EINTR:when=1..3")
    assert [line.rsplit(" ", 1)[0] for line in lines if line.startswith("append")] == ["append done"] * 3
    assert values(tmp_path / "d") == [b"zero", b"one", b"two", b"three"]


def test_without_free_descriptors_the_log_opens_or_says_why(tmp_path: Path) -> None:
    """F21"""
    path = tmp_path / "d"
    with pytest.raises(AssertionError, match=r"ulimit -n"):
        traced(path, "openat", "error=EMFILE")
    assert values(path) == [b"zero"]
