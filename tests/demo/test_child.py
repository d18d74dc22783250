"""The demo's child processes end with their block, and so do the processes that they started."""

from __future__ import annotations

import os
import subprocess

import pytest

from klog.demo.child import python_module
from tests.support.patience import PATIENCE, until


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not count."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    """A module on the path that starts a child of its own, prints both process ids and sleeps."""
    (tmp_path / "sleeper_for_test.py").write_text(
        "import os, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(os.getpid(), other.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    return "sleeper_for_test"


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_the_group_ends_with_the_block(sleeper, error):
    pids = []

    def block():
        with python_module(sleeper, stderr=subprocess.DEVNULL) as process:
            pids.extend(int(word) for word in process.stdout.readline().split())
            assert all(map(alive, pids))
            if error is not None:
                raise error

    if error is None:
        block()
    else:
        with pytest.raises(error):
            block()
    assert len(pids) == 2
    until(lambda: not any(map(alive, pids)))


def test_the_child_imports_the_same_klog(tmp_path, monkeypatch):
    import klog

    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prints_path.py").write_text("import klog; print(klog.__file__)\n")
    with python_module("prints_path", stderr=subprocess.DEVNULL) as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert output.decode().strip() == klog.__file__
