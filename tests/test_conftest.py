"""The suite's own switches do what they say."""

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
        ("flaky on Tuesdays", (), 0),
    ],
)
def test_a_skip_must_say_what_it_needs(tmp_path: Path, reason: str, options: tuple[str, ...], code: int) -> None:
    result = run(tmp_path, reason, *options)
    assert result.returncode == code, result.stdout + result.stderr
    if code:
        assert "test_cases.py::test_needs: flaky on Tuesdays" in result.stdout
