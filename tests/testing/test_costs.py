"""Which modules a test broker imports. It leaves no thread, no file and no process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import klog
from klog.testing.place import remove_left
from tests.support.resources import threads_and_descriptors

# Modules that are slow to import. A test broker that does not use them must not import them.
HEAVY = {
    "asyncio", "cffi", "click", "concurrent", "confluent_kafka", "dataclasses", "email", "http", "inspect", "numpy",
    "pandas", "pyarrow", "pytest", "rich", "shutil", "ssl", "subprocess", "tempfile", "unittest", "urllib",
}  # fmt: skip
FOREIGN_MAX = 80  # the most top-level modules that a test broker may import; there were 72
EAGER = ["broker", "fault_gate", "place", "topic", "waiting"]

LOADED = """
import sys
before = set(sys.modules)
import klog
with klog.TestBroker(topics=["orders"]) as broker:
    broker.topic("orders").append([(b"k", b"v")])
print(*sorted(set(sys.modules) - before))
"""


def test_a_broker_without_faults_loads_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert {name.partition(".")[0] for name in found}.isdisjoint(HEAVY)
    assert len({name.partition(".")[0] for name in found}) <= FOREIGN_MAX
    assert [name for name in found if name.startswith("klog.testing.")] == [f"klog.testing.{name}" for name in EAGER]
    for package in ("cli", "importing", "exporting", "polars", "duckdb", "spark", "tuning", "handover", "repairing"):
        assert f"klog.{package}" not in found


def test_a_broker_ends_all_its_threads_and_closes_all_its_files(tmp_path: Path) -> None:
    def use() -> None:
        with klog.TestBroker(topics=["orders"], control=True, record=tmp_path / f"{os.urandom(4).hex()}.jsonl") as b:
            b.inject("produce", drop=True)
            b.kill()
            b.start()
            b.restart()

    use()
    before = threads_and_descriptors()
    for _ in range(3):
        use()
    assert threads_and_descriptors() <= before


TESTS = """
import os
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range(16))
def test_it(klog_broker, number):
    klog_broker.topic("orders").append([(b"k", b"v")])
    klog_broker.inject("produce", kill="after")
    with Path(__file__).with_name("directories").open("a") as file:
        print(os.getpid(), klog_broker.directory, file=file)
    assert number != 5
"""
CONFTEST = """
import os, threading
from pathlib import Path

def pytest_sessionfinish():
    left = [each.name for each in threading.enumerate() if each.name.startswith("klog")]
    with Path(__file__).with_name("threads").open("a") as file:
        print(os.getpid(), *left, file=file)
"""


def test_tests_in_several_processes_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "8", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 15 passed" in done.stdout, done.stdout + done.stderr
    found = [line.split() for line in (tmp_path / "directories").read_text().splitlines()]
    assert len({directory for _, directory in found}) == 16
    assert not [directory for _, directory in found if Path(directory).parent.exists()]
    threads = [line.split() for line in (tmp_path / "threads").read_text().splitlines()]
    assert {process for process, _ in found} <= {process for process, *_ in threads}
    assert not [names for _, *names in threads if names]
    of_pytest = {"__pycache__", ".benchmarks"}
    left = {each.name for each in tmp_path.iterdir()} - of_pytest
    assert left == {"conftest.py", "directories", "test_it.py", "threads"}


KILLED = """
import os, sys
from klog.testing import TestBroker, place
place._TMPFS = sys.argv[1]  # a directory in which no other process removes directories of brokers
print(TestBroker().directory, flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_directory_of_a_killed_process_is_removed_later(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    home = Path(done.stdout.strip()).parent
    assert home.parent == tmp_path and home.exists()
    remove_left(str(tmp_path))
    assert not home.exists()
