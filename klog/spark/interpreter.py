"""The Python of Spark's workers, which must have klog.

Spark runs PYSPARK_PYTHON as it was when the JVM started, else the first `python3` on the PATH. A virtual environment
that is not activated is not on the PATH: then Spark's Python has no klog, and Spark reports only DATA_SOURCE_NOT_FOUND.
So the import of klog.spark sets PYSPARK_PYTHON for that case, and warns if it comes too late.
"""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "PYSPARK_PYTHON"
_HAS_KLOG = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark_klog') is None)"


def prepare() -> None:
    """Let a Spark that this process starts later run this Python, if it is one of a virtual environment that is not
    activated; warn if a Spark that runs already starts a Python without klog."""
    if _is_worker():
        return
    running = _running()
    if running is not None:
        _check(running)
    elif VARIABLE not in os.environ and not _is_activated():
        os.environ[VARIABLE] = sys.executable


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _is_activated() -> bool:
    """Is this no virtual environment, or the one of the PATH's python3?"""
    if sys.prefix == sys.base_prefix:
        return True
    import shutil

    return shutil.which("python3") == os.path.join(os.path.dirname(sys.executable), "python3")


def _running() -> str | None:
    """The Python of the session that is active, None without one."""
    sql: Any = sys.modules.get("pyspark.sql")
    session = None if sql is None else sql.SparkSession.getActiveSession()
    try:
        return None if session is None else str(session.sparkContext.pythonExec)
    except Exception:  # Spark Connect has no context
        return None


def _check(python: str) -> None:
    import shutil
    import subprocess
    import warnings

    if shutil.which(python) == sys.executable:
        return
    try:
        has_klog = subprocess.run([python, "-c", _HAS_KLOG], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        has_klog = False
    if not has_klog:
        warnings.warn(
            f"the running Spark starts {shutil.which(python) or python} for its workers, which has no klog: queries "
            f"will fail with DATA_SOURCE_NOT_FOUND or ModuleNotFoundError. Set {VARIABLE}={sys.executable} before "
            f"Spark starts, or start it by klog.spark.session()",
            RuntimeWarning,
            stacklevel=3,
        )
