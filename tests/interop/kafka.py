"""Apache Kafka for comparison: its dump tool as a program, its classes in one JVM (jars: tools/kafka_jars.py)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.patience import PATIENCE
from tools import kafka_jars
from tools.kafka_jars import Unavailable

__all__ = ["VERSIONS", "Kafka", "KafkaClasses", "Unavailable", "complaints", "get"]

VERSIONS = ("4.1.0", "4.3.1")
DUMP_CLASS = {"4.1.0": "kafka.tools.DumpLogSegments", "4.3.1": "org.apache.kafka.tools.DumpLogSegments"}

# One JVM per call of the dump tool. A single argument may not exceed 128 KiB on Linux.
DUMP_ARGUMENT_BYTES = 100_000


@dataclass(frozen=True)
class Kafka:
    version: str
    lib: Path
    classes: Path

    @property
    def class_path(self) -> str:
        return f"{self.classes}:{self.lib}/*"

    def dump(self, files: Sequence[Path], *options: str) -> tuple[str, str]:
        """stdout and stderr of DumpLogSegments over `files`; an exit status other than 0 fails."""
        out, err = [], []
        for chunk in _chunks([str(path) for path in files], DUMP_ARGUMENT_BYTES):
            command = ["java", "-cp", self.class_path, DUMP_CLASS[self.version], *options, "--files", ",".join(chunk)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise AssertionError(
                    f"DumpLogSegments {self.version} ended with {done.returncode}:\n{done.stderr[-4000:]}"
                )
            out.append(done.stdout)
            err.append(done.stderr)
        return "".join(out), "".join(err)


class KafkaClasses:
    """Runs java/KafkaClasses.java, which returns what Kafka's classes find in files. Any thread may start it; it takes one
    query at a time."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self._process = subprocess.Popen(
            ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", kafka.class_path, "KafkaClasses"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, question: str, path: Path, **details: Any) -> Any:
        answer = self._answer(question, path, **details)
        if "error" in answer:
            raise AssertionError(f"Kafka {self.kafka.version}: {answer['error']}")
        return answer

    def _answer(self, question: str, path: Path, **details: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": question, "path": str(path), **details}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the JVM of Kafka {self.kafka.version} ended: exit {self._process.wait(PATIENCE)}")
        return json.loads(line)

    def records(self, path: Path) -> Any:
        return self.ask("records", path)

    def try_records(self, path: Path) -> Any:
        """The same, or Kafka's exception as "error"."""
        return self._answer("records", path)

    def load(
        self,
        directory: Path,
        *,
        clean: bool,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        config: Mapping[str, object] | None = None,
        timestamps: Iterable[int] = (),
    ) -> Any:
        return self.ask(
            "load",
            directory,
            clean=clean,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            config=_properties(config),
            timestamps=list(timestamps),
        )

    def loads(self, cases: Sequence[Mapping[str, object]]) -> list[Any]:
        """The outcome of Kafka's loader for many directories, in one request; loads.py wraps it."""
        answer = self.ask("loads", Path(), cases=list(cases))
        assert isinstance(answer["verdicts"], list)
        return answer["verdicts"]

    def append(
        self, directory: Path, files: Sequence[Path], *, now_ms: int, config: Mapping[str, object], topic_id: str | None
    ) -> int:
        """Kafka writes a new partition directory from the batches in `files`; returns their number."""
        answer = self.ask(
            "append",
            directory,
            clean=True,
            now_ms=now_ms,
            recovery_point=0,
            log_start_offset=0,
            config=_properties(config),
            topic_id=topic_id,
            **{"from": [str(path) for path in files]},
        )
        return int(answer["batches"])

    def clean(
        self,
        directory: Path,
        rounds: Sequence[Mapping[str, object]],
        *,
        config: Mapping[str, object],
        recovery_point: int,
        log_start_offset: int = 0,
        clean: bool = True,
        slots: int = 5000,
        load_factor: float = 0.9,
        io_buffer_size: int = 65536,
        **details: Any,
    ) -> Any:
        """Run Kafka's own cleaner over the directory, round by round; java/Cleaning.java has the fields."""
        return self.ask(
            "clean",
            directory,
            rounds=list(rounds),
            now_ms=rounds[0]["now_ms"],
            config=_properties(config),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            slots=slots,
            load_factor=load_factor,
            io_buffer_size=io_buffer_size,
            **{"max_io_buffer_size": 1 << 20, **details},
        )

    def validate(self, cases: Sequence[Mapping[str, object]]) -> list[Any]:
        """The result of LogValidator for each produced buffer; java/Leader.java has the fields."""
        answer = self.ask("validate", Path(), cases=list(cases))
        assert isinstance(answer["answers"], list)
        return answer["answers"]

    def configs(self) -> Any:
        """Kafka's configuration keys: {"topic": [[name, type, default, bounds]], "broker": [...], "synonyms": {...}}."""
        return self.ask("configs", Path())

    def try_lock(self, path: Path) -> bool:
        return bool(self.ask("lock", path)["got"])

    def unlock(self, path: Path) -> None:
        self.ask("unlock", path)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> KafkaClasses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _properties(config: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (config or {}).items()}


def get(version: str) -> Kafka:
    """Jars and classes of one version, built if missing. Raises Unavailable if the machine cannot."""
    jars = kafka_jars.get(version)
    return Kafka(version, jars.lib, jars.compile(Path(__file__).parent / "java", "classes"))


def complaints(version: str, stderr: str) -> list[str]:
    """What the dump tool prints on stderr, without its known false alarm.

    The tool was rewritten for 4.3 and takes -1 for the offset before a file's first one, so every file whose base
    offset is above 0 gets "Non-consecutive offsets in FILE" and "-1 is followed by BASE".
    """
    lines = [line for line in stderr.split("\n") if line]
    if version != "4.3.1":
        return lines
    left = []
    for number, line in enumerate(lines):
        heading = re.fullmatch(r"Non-consecutive offsets in (.*/(\d{20})\.log)", line)
        follows = [f"  -1 is followed by {int(heading[2])}"] if heading else []
        if heading and lines[number + 1 : number + 2] == follows:
            lines[number + 1] = ""
        elif line:
            left.append(line)
    return left


def _chunks(paths: Iterable[str], limit: int) -> Iterable[list[str]]:
    chunk: list[str] = []
    size = 0
    for path in paths:
        assert "," not in path, f"the tool splits its argument at commas: {path}"
        if chunk and size + len(path) + 1 > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append(path)
        size += len(path) + 1
    if chunk:
        yield chunk
