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
