"""Fetches Apache Kafka's own jars by Maven, and compiles Java sources of this project against them.

    build/kafka/<version>/lib/       jars, copied once by `mvn dependency:copy-dependencies` over kafka_jars.xml
    build/kafka/<version>/<name>/    compiled classes: tests/interop/java (Kafka's own checks), bench/jvm (peers)
    build/kafka/logger/              one more jar, for a broker whose log is read
    build/kafka/spark/               Spark's Kafka connector, with what it needs beyond PySpark's own jars

None of it is in git. It is made again when it is missing or when its sources have changed. Kafka 4.2
moved the record classes to `common.record.internal`: Java sources use the new package and are rewritten for 4.1.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "kafka"
RECORDS_MOVED_IN = (4, 2)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of HOME: only one process at a time fills it, because tests run in several."""
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Unavailable(Exception):
    """This machine does not have something that is needed; the text names it."""


@dataclass(frozen=True)
class Jars:
    """The jars of one version, all present."""

    version: str
    lib: Path

    def compile(self, folder: Path, name: str) -> Path:
        """Compile `folder`/*.java if the sources have changed. Returns the directory of the classes."""
        sources = {path.name: path.read_text() for path in sorted(folder.glob("*.java"))}
        if tuple(int(part) for part in self.version.split(".")[:2]) < RECORDS_MOVED_IN:
            moved = ("common.record.internal.", "common.record.")
            sources = {name: text.replace(*moved) for name, text in sources.items()}
        classes = self.lib.parent / name
        wanted = hashlib.sha256(json.dumps(sources).encode()).hexdigest()
        stamp = classes / "complete"
        with _alone():
            if not (stamp.exists() and stamp.read_text() == wanted):
                self._compile(sources, classes)
                stamp.write_text(wanted)
        return classes

    def _compile(self, sources: dict[str, str], classes: Path) -> None:
        shutil.rmtree(classes, ignore_errors=True)
        copies = classes / "src"
        copies.mkdir(parents=True)
        for name, text in sources.items():
            (copies / name).write_text(text)
        command = ["javac", "-nowarn", "-proc:none", "-cp", f"{self.lib}/*", "-d", str(classes)]
        command += [str(copies / name) for name in sources]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"javac against Kafka {self.version}:\n{done.stderr}"


def get(version: str) -> Jars:
    """Return the jars of one version; they are fetched if missing. Raises Unavailable if they cannot be fetched."""
    if not all(shutil.which(program) for program in ("java", "javac", "mvn")):
        raise Unavailable("a JDK and Maven")
    jars = Jars(version, HOME / version / "lib")
    pom = Path(__file__).with_suffix(".xml")
    stamp = jars.lib / "complete"
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    with _alone():
        if not (stamp.exists() and stamp.read_text() == wanted):
            _resolve(jars, pom)
            stamp.write_text(wanted)
    return jars


def _resolve(jars: Jars, pom: Path) -> None:
    shutil.rmtree(jars.lib, ignore_errors=True)
    jars.lib.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-Dkafka.version={jars.version}", f"-DoutputDirectory={jars.lib}"]
    _run(command, f"the jars of Kafka {jars.version}")


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        output = done.stdout + done.stderr
        if re.search(r"Unknown host|Could not transfer|Connection refused|timed out|offline mode", output):
            raise Unavailable(f"Maven Central, for {what}")
        raise AssertionError(f"Maven could not get {what}:\n{output[-4000:]}")


def logger() -> Path:
    """Return a jar that prints Kafka's log on stderr. Put it before the others, whose binding prints nothing."""
    jar = HOME / "logger" / "slf4j-simple-1.7.36.jar"
    with _alone():
        if not jar.exists():
            command = ["mvn", "-q", "-B", "dependency:copy", "-Dartifact=org.slf4j:slf4j-simple:1.7.36"]
            _run([*command, f"-DoutputDirectory={jar.parent}"], "the logger of a broker")
    return jar


# The newest connector on Maven Central; it runs on the PySpark of the tests.
_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def spark_connector() -> list[Path]:
    """Return the jars of Spark's Kafka connector; they are fetched if missing. Raises Unavailable if they cannot be
    fetched."""
    if not shutil.which("mvn"):
        raise Unavailable("Maven")
    home = HOME / "spark"
    jars = []
    with _alone():
        for artifact in _CONNECTOR:
            _, name, version = artifact.split(":")
            jars.append(home / f"{name}-{version}.jar")
            if not jars[-1].exists():
                command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={home}"]
                _run(command, "Spark's Kafka connector")
    return jars
