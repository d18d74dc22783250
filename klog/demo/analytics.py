"""Step 6: a query on the same directory through Spark, or the text about what Spark needs and is missing. The job is
spark_job.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from klog import extras
from klog.demo.child import python_module
from klog.demo.demo_directory import FLIGHTS, SPARK_LOG
from klog.demo.events import airline_names
from klog.demo.failure import DemoFailed
from klog.demo.narrator import Narrator, duration
from klog.demo.spark_job import QUESTION
from klog.scratch import scratch_directory
from klog.values import dataclass

JAVA_MIN = 17  # Spark 4


@dataclass(frozen=True, slots=True)
class DelayRow:
    carrier: str
    name: str
    hour: int
    departures: int
    mean_delay_minutes: float


@dataclass(frozen=True, slots=True)
class SparkResult:
    version: str
    rows: int
    count_seconds: float
    answer: tuple[DelayRow, ...]
    answer_seconds: float
    seconds: float


def missing() -> str | None:
    """Return what Spark needs that is missing here, and how to get it; None if nothing is missing."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return f"PySpark is not installed. Get it with: {extras.command('demo')}"
    remedy = (
        "Get it with: apt install default-jre-headless (Debian 13, Ubuntu 24.04) or openjdk-17-jre-headless (before), "
        "or from https://adoptium.net, then set JAVA_HOME"
    )
    java = _java()
    if java is None:
        return f"Spark needs Java {JAVA_MIN} or newer, and there is none on the PATH or at JAVA_HOME. {remedy}"
    version = _java_version(java)
    if version is not None and version < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN} or newer, but {java} is Java {version}. {remedy}"
    return None


def _java() -> str | None:
    """Return the java that Spark's launcher will use: JAVA_HOME first."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")


def _java_version(java: str) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`, 8 for `"1.8.0_402"`; None if java does not print its version."""
    try:
        found = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', found.stderr + found.stdout)
    return int(match[1]) if match else None


def ask(directory: Path) -> SparkResult:
    """Run the job over the directory, which must be closed. Spark's messages go to spark.log in it, which is kept if
    the job fails. Raises DemoFailed then."""
    log = directory / SPARK_LOG
    started = time.perf_counter()
    with (
        scratch_directory("klog-demo-spark-") as scratch,
        log.open("wb") as errors,
        python_module("klog.demo.spark_job", str(directory), FLIGHTS, scratch, stderr=errors) as job,
    ):
        output, _ = job.communicate()
        status = job.returncode
    seconds = time.perf_counter() - started
    if status != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise DemoFailed(f"the Spark job failed with status {status}; its messages are in {log}, which ends:\n{tail}")
    log.unlink()
    found = json.loads(output.splitlines()[-1])
    names = airline_names()
    return SparkResult(
        version=found["version"],
        rows=found["rows"],
        count_seconds=found["count_seconds"],
        answer=tuple(
            DelayRow(carrier, names[carrier], hour, departures, delay)
            for carrier, hour, departures, delay in found["answer"]
        ),
        answer_seconds=found["answer_seconds"],
        seconds=seconds,
    )


def introduce(to: Narrator) -> None:
    to.say(
        "The same files, now as a DataFrame: no JAR, no broker, no registration. Which airlines leave late, and at "
        "what hour? Hours with fewer than one departure a day are left out."
    )
    to.code(
        f'events = spark.read.format("klog").option("subscribe", "{FLIGHTS}").load(directory)\n'
        'events.createOrReplaceTempView("events")\n'
        f'spark.sql("""{QUESTION.strip()}""")'
    )


def show(result: SparkResult, to: Narrator) -> None:
    to.table(
        ["carrier", "name", "hour", "departures", "minutes late"],
        [
            [row.carrier, row.name, f"{row.hour:02}", f"{row.departures:,}", f"{row.mean_delay_minutes:.1f}"]
            for row in result.answer
        ],
        left=2,
    )
    to.facts(
        [
            ("rows", f"{result.rows:,} counted by Spark {result.version} in {duration(result.count_seconds)}"),
            ("answer", f"in {duration(result.answer_seconds)}, JSON parsed by Spark"),
            ("in all", f"{duration(result.seconds)}, including the start of the JVM"),
        ]
    )
