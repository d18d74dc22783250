"""A local Spark session in a process that has none, and programs with one, which can be killed."""

from __future__ import annotations

import os
import re
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
from tests.support.patience import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]
_SITE = Path(__file__).parent / "spark_python"  # a sitecustomize


@contextmanager
def spark_session(home: Path, **conf: object) -> Iterator[SparkSession]:
    """A session whose files are in `home`, with klog.spark.recommended_conf(); the Python of its workers is unset.

    local[2,3]: a task may fail twice before the job does, so that a test can make one fail. A process has one session:
    a test with its own is in a module whose tests do not use the fixture `spark`.
    """
    from pyspark.sql import SparkSession

    assert SparkSession.getActiveSession() is None, "another session is active: this one would be ignored"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(_SITE), str(_ROOT), os.environ.get("PYTHONPATH", "")]))
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
def standalone_cluster(home: Path) -> Iterator[str]:
    """A master and two workers of one core each, on two addresses of the loopback: Spark runs a speculative attempt of
    a task only on another host. Yields the URL of the master."""
    import pyspark

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])

    def started(name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [spark_class, f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0", "--webui-port", "0"]
        with (home / f"{host}.{name}.log").open("wb") as log:
            running = subprocess.Popen(
                [*command, *arguments],
                cwd=home,
                env={**environment, "SPARK_LOCAL_IP": host},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        processes.append(running)
        return running

    processes: list[subprocess.Popen[bytes]] = []
    try:
        started("master.Master", "127.0.0.1")
        urls: list[str] = []

        def url_is_known() -> bool:
            log = (home / "127.0.0.1.master.Master.log").read_text()
            urls[:] = re.findall(r"Starting Spark master at (spark://\S+)", log)
            return bool(urls)

        until(url_is_known, pause=0.05)
        for host in ("127.0.0.1", "127.0.0.2"):
            started("worker.Worker", host, "--cores", "1", "--memory", "1g", "--work-dir", str(home / host), urls[0])
        yield urls[0]
    finally:
        for running in processes:
            _kill_session(running.pid)
            running.wait()


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


def await_progress(program: subprocess.Popen[str], steps: int) -> None:
    """Return when the program has printed so many more lines, or has ended. Raises if it has failed."""
    assert program.stdout is not None
    if any(not program.stdout.readline() for _ in range(steps)):
        assert program.wait() == 0


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
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    has_ended = fields[0] in "ZX" and int(fields[17]) <= 1  # not if only its first thread has
    return int(fields[3]) == session and not has_ended
