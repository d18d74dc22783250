"""A virtual environment that is not activated: Spark's workers run its Python, or a warning names the setting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import klog
from klog.spark import interpreter

ROOT = Path(__file__).resolve().parents[2]
BIN = os.path.dirname(sys.executable)

pytestmark = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="needs: a virtual environment")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with another python3, which has no klog; PYSPARK_PYTHON is unset."""
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text(f'#!/bin/sh\nexec env -u PYTHONPATH "{sys._base_executable}" -I "$@"\n')  # type: ignore[attr-defined]
    (other / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{os.environ['PATH'].replace(BIN, '/nowhere')}")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    return other / "python3"


def run(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::FutureWarning", "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.usefixtures("elsewhere")
def test_the_import_sets_the_python_of_the_workers_if_it_is_missing() -> None:
    script = "import os, klog.spark; print(os.environ.get('PYSPARK_PYTHON'))"
    assert run(script) == sys.executable
    assert run(script, PYSPARK_PYTHON="other") == "other"
    assert run(script, PATH=f"{BIN}:{os.environ['PATH']}") == "None"  # activated


@pytest.mark.usefixtures("elsewhere")
def test_a_worker_of_spark_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", types.SimpleNamespace(name="pyspark.daemon"))
    interpreter.prepare()
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.parametrize("connect", [False, True])
def test_a_running_spark_whose_python_has_no_klog_gives_a_warning(
    connect: bool, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def running(python: str) -> None:
        context = types.SimpleNamespace(**({} if connect else {"pythonExec": python}))
        session = types.SimpleNamespace(getActiveSession=lambda: types.SimpleNamespace(sparkContext=context))
        monkeypatch.setitem(sys.modules, "pyspark.sql", types.SimpleNamespace(SparkSession=session))  # type: ignore[arg-type]
        interpreter.prepare()

    running(sys.executable)
    assert not [each for each in recwarn if each.category is RuntimeWarning]  # garbage collection may cause others
    if connect:
        return
    for python in ("python3", "nowhere"):
        running(python)
        message = str(recwarn.pop(RuntimeWarning).message)
        assert f"Set PYSPARK_PYTHON={sys.executable} before Spark starts" in message
        assert (str(elsewhere) if python == "python3" else python) in message
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_a_plain_session_reads_after_the_import(tmp_path: Path) -> None:
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("needs: a JDK")
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
    script = f"""
import klog.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("klog").load({str(tmp_path / "data")!r}).count())
"""
    assert run(script) == "1"
