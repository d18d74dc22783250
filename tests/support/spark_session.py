"""A local Spark session in a process that has none, and programs with one, which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klog.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def spark_session(home: Path, **conf: object) -> Iterator[SparkSession]:
    """A session whose files are in `home`, with klog.spark.recommended_conf(); the Python of its workers is unset.

    local[2,3]: a task may fail twice before the job does, so that a test can make one fail.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.delenv("PYSPARK_PYTHON", raising=False)
        session = klog.spark.session(
            {
                "spark.master": "local[2,3]",
                "spark.ui.enabled": False,
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.session.timeZone": "America/New_York",
                "spark.sql.warehouse.dir": str(home / "warehouse"),
                "spark.local.dir": str(home),
                "spark.python.authenticate.socketTimeout": "10m",  # 15 s, if not set: too few for a busy machine
                **conf,
            }
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def spark_program(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program that prints "begun" when its session has started. After the block its processes are killed if they
    still run: the program, its JVM and its Python workers."""
    program = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    with program:
        try:
            assert program.stdout is not None and "begun" in program.stdout.readline()
            yield program
        finally:
            _kill_session(program.pid)


def _kill_session(leader: int) -> None:
    """Kill all processes of a session. Returns when none is left. PySpark's daemon has a process group of its own, and
    its workers run for a while without the JVM."""
    while running := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _runs_in(pid, leader)]:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _runs_in(pid: int, session: int) -> bool:
    try:
        state, _, _, found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return False
    return int(found) == session and state not in "ZX"
