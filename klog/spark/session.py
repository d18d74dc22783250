"""Spark settings that klog's reads like, and a local session that has them.

The settings are measured ones: batches reach Python through a Unix socket with a larger buffer, and Arrow's bounds
checks in the JVM are off (klog writes the batches itself, and Spark checks their schema). Reads work without them.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("klog.spark")

_ARROW_JAVA = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def recommended_conf(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Spark properties for a new session; those in `conf` win, and Java options are appended to, never replaced."""
    given = dict(conf or {})
    merged = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.buffer.size": str(1 << 20),
        "spark.sql.python.filterPushdown.enabled": "true",
        **given,
    }
    for name in _JAVA_OPTIONS:
        before = given.get(name, "")
        merged[name] = before if _ARROW_JAVA in before else f"{before} {_ARROW_JAVA}".strip()
    return merged


def session(conf: Mapping[str, object] | None = None, **more: object) -> SparkSession:
    """A SparkSession with `recommended_conf()`, on local[*] unless "spark.master" says otherwise.

    Properties have dots in their names: session({"spark.master": "local[2]"}) or session(**{"spark.master": …}).
    The workers run this very interpreter unless PYSPARK_PYTHON is set: without that, Spark starts whichever `python3`
    comes first on the PATH, and that one may have no klog. In a process that already has a session, this returns that
    session: what can be changed is set, the rest is listed in a warning.
    """
    spark_session = _pyspark()
    given = {name: _text(value) for name, value in {**(conf or {}), **more}.items()}
    running = spark_session.getActiveSession()
    if running is not None:
        _adjust(running, recommended_conf(given))
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {"spark.master": "local[*]", "spark.app.name": "klog", **recommended_conf(given)}
    builder = spark_session.builder
    for name, value in wanted.items():
        builder = builder.config(name, value)
    created: SparkSession = builder.getOrCreate()
    return created


def _adjust(running: SparkSession, wanted: Mapping[str, str]) -> None:
    late = []
    for name, value in sorted(wanted.items()):
        if running.conf.isModifiable(name):
            running.conf.set(name, value)
        elif running.conf.get(name, None) != value:
            late.append(name)
    if late:
        logger.warning("a running session cannot take these; stop it and start it again: %s", ", ".join(late))


def _text(value: object) -> str:
    # Spark reads "true", not Python's "True".
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pyspark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(f"no Spark here ({error}); install it: pip install 'klog[spark]'", name="pyspark") from error
    return SparkSession
