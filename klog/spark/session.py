"""Recommended Spark settings for klog, and a local session with them.

The settings were measured: batches reach Python through a Unix socket with a larger buffer, and Arrow's bounds checks
in the JVM are off (klog writes the batches itself, and Spark checks their schema). Reads work without them, too.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klog import extras
from klog.config.properties import read_properties
from klog.logger import logger_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logger_of("spark")

_ARROW_JAVA = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def recommended_conf(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Spark properties for a new session. Those in `conf` win; Java options are appended to, never replaced."""
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
    """Return a SparkSession with `recommended_conf()`, on local[*] unless "spark.master" is given.

    Properties have dots in their names: session({"spark.master": "local[2]"}) or session(**{"spark.master": …}).
    The workers run this very interpreter unless PYSPARK_PYTHON is set; otherwise Spark would start the first `python3`
    on the PATH, which may not have klog. Java options of spark-submit, PYSPARK_SUBMIT_ARGS and spark-defaults.conf are
    kept. In a process that already has a session, this returns that session: settings that can be changed are set, the
    others are listed in a warning.
    """
    spark_session = _pyspark()
    given = {name: _text(value) for name, value in {**(conf or {}), **more}.items()}
    running = spark_session.getActiveSession()
    if running is not None:
        late = _adjust(running, recommended_conf(given))
        if late:
            names = ", ".join(late)
            logger.warning("a running session cannot change these; stop it and start it again: %s", names)
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {"spark.master": "local[*]", "spark.app.name": "klog", **recommended_conf({**_set_already(), **given})}
    builder = spark_session.builder
    for name, value in wanted.items():
        builder = builder.config(name, value)
    created: SparkSession = builder.getOrCreate()
    return created


def _set_already() -> dict[str, str]:
    """Return the Java options that Spark would use: those of a builder replace them."""
    from pyspark import SparkConf, SparkContext

    if "PYSPARK_GATEWAY_PORT" in os.environ:  # this program runs in spark-submit, whose JVM knows them
        SparkContext._ensure_initialized()  # type: ignore[attr-defined]
    if SparkContext._jvm is not None:
        found = dict(SparkConf().getAll())
    else:
        found = _given_to_submit(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    return {name: found[name] for name in _JAVA_OPTIONS if name in found}


def _given_to_submit(arguments: Sequence[str]) -> dict[str, str]:
    """Return the properties that spark-submit takes from its arguments, and from its file of properties."""
    given: dict[str, str] = {}
    file = None
    words = iter(arguments)
    for word in words:
        option, has_value, value = word.partition("=")
        if option in ("--conf", "-c", "--properties-file", "--driver-java-options"):
            value = value if has_value else next(words, "")
            if option == "--properties-file":
                file = value
            elif option == "--driver-java-options":
                given[_JAVA_OPTIONS[0]] = value
            else:
                name, _, text = value.partition("=")
                given[name] = text
    with contextlib.suppress(FileNotFoundError):
        given = {**read_properties(file or _defaults_file()), **given}
    return given


def _defaults_file() -> str:
    from pyspark.find_spark_home import _find_spark_home

    directory = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    return os.path.join(directory, "spark-defaults.conf")


def enable(spark: SparkSession) -> list[str]:
    """Set those of `recommended_conf()` that can be set while Spark runs in a session that klog did not start. It needs
    this for pushdown=true.

    Returns the names of the others that the session has not: Spark takes these only when it starts.
    """
    return _adjust(spark, recommended_conf())


def _adjust(running: SparkSession, wanted: Mapping[str, str]) -> list[str]:
    """Set what can be set; return the names of what cannot and has another value."""
    late = []
    for name, value in sorted(wanted.items()):
        if running.conf.isModifiable(name):
            running.conf.set(name, value)
        elif running.conf.get(name, None) != value:
            late.append(name)
    return late


def _text(value: object) -> str:
    # Spark expects "true", not Python's "True".
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pyspark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise extras.missing("session()", "pyspark", "spark", error) from error
    return SparkSession
