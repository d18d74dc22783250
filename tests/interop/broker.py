"""A whole Kafka broker, from its jars: one node in combined KRaft mode, on a loopback address of this process only: a
port that was free there stays free until the broker binds it.

Its log.dir is the subject of the tests, so it is kept between starts. Its log output goes to a file per start;
complaints() picks out lines that a valid directory does not cause. Every wait is bounded, and only the process started
here is killed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.kafka import Kafka
from tools import kafka_jars

START_SECONDS = 600  # to wait for an event, even on a busy machine
STOP_SECONDS = 300
_HOST = f"127.{1 + (os.getpid() >> 16 & 63)}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
CLUSTER_ID = "kl0gKl0gKl0gKl0gKl0gKg"
_SMALL_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
JAVA = ("java", *_SMALL_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")  # for tools: little memory, few lines
# What a broker logs only if something in a directory is wrong or unexpected.
_TROUBLE = re.compile(
    r"^ERROR|^WARN (kafka\.log|kafka\.cluster|kafka\.server\.Replica|org\.apache\.kafka\.(storage|controller\.Rep))|"
    r"Recovering unflushed segment|Rebuilding (producer|index)|Truncat(ing|ed) (?!.*cleanOffsets)|corrupt|stray|"
    r"unclean election|UNCLEAN partition|as future|is offline|Deleting segment",
    re.MULTILINE,
)
# It always loads its own metadata log as after a crash (KafkaMetadataLog).
_ALWAYS = "partition=__cluster_metadata-0"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class BrokerProcess:
    """The process of a broker, on a log.dir and a server.properties that are there. Use start(), stop() and kill(), or
    `with` for a run."""

    def __init__(self, kafka: Kafka, home: Path, log_dir: Path, jvm: Sequence[str] = _SMALL_JVM) -> None:
        """jvm: the options of the broker's JVM."""
        self.kafka = kafka
        self.home = home
        self.log_dir = log_dir
        self.starts = 0
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
        self._port, controller = _free_port(), _free_port()
        self.controller = f"{_HOST}:{controller}"
        self._properties = home / "server.properties"
        home.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process of the running broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What this start (or the last one) has logged so far."""
        return self._log_path.read_text(errors="replace")

    @property
    def _log_path(self) -> Path:
        return self.home / f"broker-{self.starts}.log"

    def _run_tool(self, *arguments: str) -> None:
        command = [*JAVA, "-cp", self._class_path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    @property
    def _class_path(self) -> str:
        return f"{kafka_jars.logger()}:{self.kafka.lib}/*"

    def start(self) -> Self:
        """Return once clients can connect; AssertionError with the end of its log if it does not start."""
        assert self._process is None
        self.starts += 1
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    *self._jvm,
                    "-Dorg.slf4j.simpleLogger.showThreadName=false",
                    "-cp",
                    self._class_path,
                    "kafka.Kafka",
                    str(self._properties),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.home,
                env={**os.environ, "KAFKA_HEAP_OPTS": ""},
            )
        until = time.monotonic() + START_SECONDS
        while "Kafka Server started" not in self.log:
            if self._process.poll() is not None or time.monotonic() > until:
                end = self._process.poll()
                self.kill()
                raise AssertionError(f"no broker after start {self.starts} (exit {end}):\n{self.log[-6000:]}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """A clean shutdown: it flushes, writes its checkpoints and clean-shutdown file, and releases the lock."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop in {STOP_SECONDS} s:\n{self.log[-6000:]}") from None
        self._process = None

    def kill(self) -> None:
        """SIGKILL the process that start() started; no effect if it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def complaints(self) -> list[str]:
        """Lines of this start's log that a valid directory does not cause."""
        return [line for line in self.log.splitlines() if _TROUBLE.search(line) and _ALWAYS not in line]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is None:
            return
        if error is None:
            self.stop()
        else:
            self.kill()


class Broker(BrokerProcess):
    """One log.dir, formatted by Kafka's own tool, and a broker on it."""

    def __init__(self, kafka: Kafka, home: Path, jvm: Sequence[str] = _SMALL_JVM, **settings: object) -> None:
        super().__init__(kafka, home, home / "data", jvm)
        properties: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.log_dir,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.initial.task.delay.ms": 600_000,
            **settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
