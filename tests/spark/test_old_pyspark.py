"""klog on real older PySparks: 4.2, the first with limits of triggers; 4.1, the first with push-down; 4.0, the first with
Python data sources; and 3.5, which has only klog.spark.scan.

They are installed once below build/pyspark, beside the packages of this environment.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "pyspark"
SOURCES = ["scan", "read", "write", "stream", "valueFormat", "table", "jobs"]  # what needs the data source API

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(1800)]


def installed(version: str) -> list[Path]:
    """Install this PySpark. Return the entries with which PYTHONPATH must begin to import it."""
    target = HOME / version
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "complete").exists():
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(target)]
            done = subprocess.run([*command, f"pyspark=={version}.*"], capture_output=True, text=True, check=False)
            if done.returncode and "onnection" in done.stderr:
                pytest.skip(f"needs: a package index, for PySpark {version}")
            assert done.returncode == 0, done.stderr
            (target / "complete").touch()
    return [target, *target.glob("pyspark/python/lib/py4j-*.zip")]


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("4.2", [*SOURCES, "push-down", "limits are kept: 300"]),
        ("4.1", [*SOURCES, "push-down", "limits are refused"]),
        ("4.0", [*SOURCES, "limits are refused"]),
        ("3.5", ["scan"]),
    ],
)
def test_klog_uses_what_this_pyspark_supports(version: str, wanted: list[str], tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, [*installed(version), ROOT]))
    program = ROOT / "tests" / "spark" / "old_pyspark.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.splitlines() == wanted
