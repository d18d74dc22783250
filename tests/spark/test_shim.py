"""pyspark_klog during Spark's look-up, in separate interpreters and without a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *first: Path) -> str:
    """Run `code` and return its stdout. The directories `first` precede klog on the path."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*first, ROOT)))},
        cwd="/",  # -c puts the working directory first on the path
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def broken(directory: Path, module: str) -> Path:
    """Write a package `module` whose import fails. Return the directory."""
    (directory / module).mkdir(parents=True)
    (directory / module / "__init__.py").write_text("raise RuntimeError('this one is broken')\n")
    return directory


LOOK_UP = """
import sys
from importlib import import_module
from pkgutil import iter_modules
found = {info.name: import_module(info.name) for info in iter_modules() if info.name.startswith("pyspark_")}
source = found["pyspark_klog"].DefaultSource
"""


def test_spark_finds_the_source() -> None:
    assert run(LOOK_UP + "print(source.name())") == "klog"


def test_the_look_up_loads_neither_klog_nor_pyarrow() -> None:
    loaded = "sorted({name.partition('.')[0] for name in sys.modules} & {'klog', 'pyarrow', 'pandas', 'numpy'})"
    assert run(LOOK_UP + f"print({loaded})") == "[]"


def test_the_source_pickles_by_name() -> None:
    code = "import pickle; print(pickle.loads(pickle.dumps(source)) is source)"
    assert run(LOOK_UP + code) == "True"


def test_a_broken_klog_is_an_error_of_the_source_not_of_the_look_up(tmp_path: Path) -> None:
    code = """
try:
    source(options={"path": "/"})
except ImportError as error:
    print(error)
"""
    for module in ("klog", "pyarrow"):
        message = run(LOOK_UP + code, broken(tmp_path / module, module))
        assert "RuntimeError: this one is broken" in message
        assert "-m pip install 'klog[spark]'" in message
        assert "PYSPARK_PYTHON" in message


def test_without_pyspark_the_import_still_works(tmp_path: Path) -> None:
    assert run("import pyspark_klog; print(pyspark_klog.DefaultSource.name())", broken(tmp_path, "pyspark")) == "klog"


def test_klog_spark_without_pyspark_raises_with_the_install_command(tmp_path: Path) -> None:
    code = """
import klog.spark
print(sorted(klog.spark.recommended_conf()))
try:
    klog.spark.session()
except ImportError as error:
    print(error)
"""
    (tmp_path / "pyspark.py").write_text("raise ImportError('No module named pyspark')\n")
    listing, message = run(code, tmp_path).splitlines()
    assert "spark.buffer.size" in listing
    assert "pip install 'klog[spark]'" in message


def test_importing_klog_spark_loads_neither_pyspark_nor_pyarrow() -> None:
    assert run("import klog.spark, sys; print({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))") == "set()"
    jobs = "{'klog.cleaner', 'klog.importing', 'klog.inspect', 'klog.manager', 'klog.spark.jobs'}"
    assert run(f"import klog.spark, sys; print({jobs} & set(sys.modules))") == "set()"
