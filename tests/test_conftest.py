"""The suite's own options work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

def test_needs():
    pytest.skip({reason!r})

def test_passes():
    pass
"""


def run(tmp_path: Path, reason: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_cases.py").write_text(CASES.format(reason=reason))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        *options,
        ".",
    ]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})


@pytest.mark.parametrize(
    ("reason", "options", "code"),
    [
        ("needs: a JDK", ("--only-needs-skips",), 0),
        ("flaky on Tuesdays", ("--only-needs-skips",), 1),
        ("flaky on Tuesdays", ("--only-needs-skips", "-n", "2"), 1),
        ("flaky on Tuesdays", (), 0),
    ],
)
def test_a_skip_must_name_what_it_needs(tmp_path: Path, reason: str, options: tuple[str, ...], code: int) -> None:
    result = run(tmp_path, reason, *options)
    assert result.returncode == code, result.stdout + result.stderr
    if code:
        assert "test_cases.py::test_needs: flaky on Tuesdays" in result.stdout


def test_a_file_is_one_unit_of_work_except_where_each_test_is_one(tmp_path: Path) -> None:
    """And the tests that may take longest start first."""
    parts = {"a": "tests/log/test_a.py", "b": "tests/log/test_b.py", "c": "tests/crash/test_c.py"}
    cases = "import os, pytest\n\n@pytest.mark.timeout({limit})\n@pytest.mark.parametrize('case', range(30))\n"
    cases += "def test_it(case):\n    print(os.environ['PYTEST_XDIST_WORKER'], {name!r}, case)\n"
    for limit, (name, part) in enumerate(parts.items(), 300):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_text(cases.format(name=name, limit=limit))
    result = run(tmp_path, "needs: nothing", "-n", "2", "-rP")
    assert "91 passed, 1 skipped" in result.stdout, result.stdout
    ran = [line.split() for line in result.stdout.splitlines() if line.startswith("gw")]
    workers = {name: {worker for worker, case_of, _ in ran if case_of == name} for name in parts}
    assert [len(workers[name]) for name in parts] == [1, 1, 2]
    assert ran[0][1] == "c"


THREADS = """
import threading
import pytest

over = threading.Event()


@pytest.fixture(scope="module")
def shared():
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


def test_with_a_thread_of_the_module(shared):
    pass


def test_whose_thread_is_about_to_end(shared):
    threading.Timer(0.05, int).start()


def leave(name):
    threading.Thread(target=threading.Event().wait, name=name, daemon=True).start()


def test_that_leaves_a_thread(shared):
    leave("endless")


def test_that_leaves_a_client(shared):
    leave("kafka-python-producer-1-network-thread")


def test_after_it(shared):
    pass
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_threads_that_a_test_leaves_are_found(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_threads.py").write_text(THREADS)
    (tmp_path / "short.py").write_text("from tests.support import leftovers\n\nleftovers.SECONDS = 0.5\n")
    result = run(tmp_path, "needs: nothing", "-p", "short", *options)
    assert result.returncode == 1
    assert "6 passed, 1 skipped, 1 warning, 1 error" in result.stdout, result.stdout
    assert "test_threads.py::test_that_leaves_a_thread leaves threads: endless\n" in result.stdout
    assert "ERROR test_threads.py::test_that_leaves_a_client" in result.stdout
    assert "threads of clients are left: kafka-python-producer-1-network-thread" in result.stdout
