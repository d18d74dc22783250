"""Real limits of the system, not simulated ones: a small file system, few inodes, RLIMIT_FSIZE, no free descriptor, an
immutable directory, a file system that is read-only, a memory cgroup. Each call raises a KlogError or OSError, no acknowledged record is lost, and the log works again
after the limit is lifted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import klog
from bench.contest import Unavailable
from bench.memory_cgroup import memory_cgroup

ROOT = Path(__file__).resolve().parents[2]
WORK = [sys.executable, "-m", "tests.support.limited"]


def run(*command: str) -> dict[str, Any]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """F15: RLIMIT_FSIZE causes EFBIG and no signal."""
    report = run(*WORK, "file size", str(tmp_path))
    assert report["met"]["append"] == "EFBIG" and report["offline"] is None


def test_no_descriptor_available(tmp_path: Path) -> None:
    """F21: EMFILE is temporary, so nothing goes offline."""
    report = run(*WORK, "descriptors", str(tmp_path))
    assert "EMFILE" in report["met"].values() and report["offline"] is None


def mounted(path: Path, limit: str) -> dict[str, Any]:
    script = 'mount -t tmpfs -o size=64m,nr_inodes=10000 none "$1" && shift && exec "$@"'
    try:
        probe = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", str(path), "true"], capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs: unshare(1)")
    if probe.returncode:
        pytest.skip("needs: the right to mount a file system")
    return run("unshare", "-m", "sh", "-c", script, "sh", str(path), *WORK, limit, str(path))


@pytest.mark.parametrize("limit", ["space", "inodes"])
def test_a_full_file_system(tmp_path: Path, limit: str) -> None:
    """F15, F16: a tmpfs of 512 KiB, or of 30 inodes; reading a hole of a mapped index there allocates a page."""
    report = mounted(tmp_path, limit)
    assert report["met"]["append"] == report["met"]["roll"] == "ENOSPC" and report["offline"] is None


@pytest.mark.deep
def test_an_immutable_directory(tmp_path: Path) -> None:
    """chattr +i: the error is final for the log until it is opened again."""
    flag = tmp_path / "flag"
    flag.mkdir()
    if not shutil.which("chattr") or subprocess.run(["chattr", "+i", str(flag)], capture_output=True).returncode:
        pytest.skip("needs: chattr +i")
    subprocess.run(["chattr", "-i", str(flag)], check=True)
    try:
        report = run(*WORK, "immutable", str(tmp_path))
    finally:
        subprocess.run(["chattr", "-i", str(tmp_path / "t-0")], check=False)
    met = report["met"]["append"], report["met"]["open"]  # open checks write permission before it changes anything
    assert met == ("EPERM", "EACCES") and "immutable" in report["offline"]


HOG = """
import sys, threading, klog
logs = klog.open(sys.argv[1], create=True, durability=sys.argv[2])
logs.create_topic("t")
log = logs.log("t")

def append(numbers):
    for number in numbers:
        log.append([(None, b"%d" % number)])
        print(number, flush=True)

append([0])
threading.Thread(target=append, args=(range(1, 1 << 30),), daemon=True).start()
hoard = [b"x" * (1 << 20) for _ in range(int(sys.argv[3]))]
"""


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_process_that_is_killed_for_its_memory(tmp_path: Path, durability: str) -> None:
    """F1: at any of its instructions, while it appends."""
    mib = 128
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(memory_cgroup(mib << 20))
        except Unavailable as error:
            pytest.skip(f"needs: {error}")
        done = subprocess.run(
            [sys.executable, "-c", HOG, str(tmp_path), durability, str(4 * mib)],
            cwd=ROOT,
            capture_output=True,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
    if done.returncode == 0:
        pytest.skip("needs: a memory cgroup that limits swap, too")
    assert done.returncode == -signal.SIGKILL, done.stderr
    acknowledged = len(done.stdout.splitlines(keepends=True)) - (not done.stdout.endswith(b"\n"))
    with klog.open(tmp_path) as logs:
        found = [record.value for record in logs.read("t")]
        assert found == [b"%d" % number for number in range(len(found))]
        assert len(found) >= acknowledged > 0
        assert logs.log("t").append([(None, b"v")]).first_offset == len(found)


READ_ONLY = """
import sys, klog
path = sys.argv[1]
with klog.open(path, read_only=True) as logs, klog.Log.open(path + "/t-0", read_only=True) as log:
    print([record.value for record in logs.read("t")] == [record.value for record in log.read()] == [b"v"] * 3)
print(klog.verify(path).ok)
for call in (klog.open, lambda path: klog.Log.open(path + "/t-0"), lambda path: klog.open(path + "/new", create=True)):
    try:
        print(call(path))
    except OSError as error:
        print(error.errno, error.filename.startswith(path), "read_only=True" in str(error))
"""


def test_a_read_only_file_system(tmp_path: Path) -> None:
    """F29: readers need no file there that can be written; a writer raises, and states what to do."""
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(None, b"v")] * 3)
    path = str(tmp_path / "d")
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", path]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("needs: the right to mount a file system")
    done = subprocess.run([*command, sys.executable, "-c", READ_ONLY, path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "True"] + [f"{errno.EROFS} True True"] * 3
