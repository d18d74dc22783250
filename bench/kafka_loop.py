"""A warm JVM that runs Kafka's own classes on request: the programs in bench/jvm. child.py has the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.child import Child, write_fetches
from bench.contest import Unavailable
from tools import kafka_jars

VERSION = "4.1.0"
_SOURCES = Path(__file__).parent / "jvm"
_HEAP = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
_WARM_UP_SECONDS = 3.0


class KafkaJvm(Child):
    """A JVM that runs one of the programs in bench/jvm. Raises Unavailable if there is no JDK or if jars are
    missing."""

    def __init__(self, program: str, *arguments: str) -> None:
        try:
            jars = kafka_jars.get(VERSION)
        except kafka_jars.Unavailable as missing:
            raise Unavailable(str(missing)) from missing
        classes = jars.compile(_SOURCES, "bench")
        command = ["java", *_HEAP, "-cp", f"{classes}:{jars.lib}/*", program, *arguments]
        super().__init__(f"Kafka {VERSION}", command, warm_up_seconds=_WARM_UP_SECONDS)


class KafkaLoop(KafkaJvm):
    """KafkaLoop over `fetches` of whole batches, `repeats` times per request."""

    def __init__(self, fetches: Sequence[bytes], folder: Path, repeats: int) -> None:
        self._folder = folder
        super().__init__("KafkaLoop", str(write_fetches(fetches, folder / "fetches")), str(repeats))

    def encoded(self) -> bytes:
        """Return the batches that Kafka encodes from the records in the fetches."""
        path = self._folder / "encoded"
        self.ask(f"encoded {path}")
        return path.read_bytes()
