"""Real limits of the system, not simulated ones: a small file system, few inodes, RLIMIT_FSIZE, no free descriptor, an
immutable directory. Each call raises a KlogError or OSError, no acknowledged record is lost, and the log works again
after the limit is lifted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
