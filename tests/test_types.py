"""`mypy --strict` accepts every documented form of records for append, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A line that mypy must refuse ends with "# refused".
PROGRAM = """
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import klog
from klog import record


class Array:
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        raise NotImplementedError


class Stream:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise NotImplementedError


class Row(NamedTuple):
    key: bytes | None
    value: bytes


def pairs() -> Iterator[tuple[bytes, bytes]]:
    yield b"k", b"v"


def texts() -> Iterator[tuple[str, str]]:
    yield "k", "v"


async def later() -> AsyncIterator[tuple[bytes, bytes]]:
    yield b"k", b"v"


def good(log: klog.Log, logs: klog.LogManager, triples: list[tuple[bytes, bytes, int]]) -> None:
    log.append([klog.Record(b"k", b"v"), klog.Record(key=None, value=bytearray(b"v"), headers=[("h", b"1"), ("n", None)])])
    log.append([(b"k", b"v")])
    log.append([(None, None), (memoryview(b"k"), bytearray(b"v"))])
    log.append([(b"k", b"v", 7), (b"k", None, None)])
    log.append([(b"k", b"v", 7, [("h", b"1")]), (b"k", b"v", None, None), (b"k", b"v"), klog.Record(b"k", b"v")])
    log.append(triples)
    log.append(((b"k", b"v") for _ in range(3)), compression=("zstd", 3))
    log.append(pairs(), compression="lz4")
    log.append({(b"k", b"v")})
    log.append([Row(b"k", b"v")])
    log.append(record.Lists([b"k"], [b"v"]))
    log.append(Array())
    log.append(Stream())
    log.append(log.read())
    logs.append("t", [(b"k", b"v")])
    logs.append("t", Stream())
    logs.append("t", [("k", {"a": 1})], serializer="json", key_serializer="utf8")
    logs.append("t", Stream(), value=["a", "b"], key="k", serializer="json", ignore_other_columns=True)
    log.append(texts(), serializer=None, key_serializer=str.encode)
    log.append(Stream(), value="payload")
    record.encode([(b"k", b"v")])
    record.BatchBuilder().extend([(b"k", b"v", 7)])


async def good_async(log: klog.Log) -> None:
    await log.append_async([(b"k", b"v")])
    await log.append_async(Stream())


def bad(log: klog.Log, logs: klog.LogManager) -> None:
    log.append([("a", "b")])  # refused
    log.append([(b"a", "b")])  # refused
    log.append([("a", b"b")])  # refused
    log.append(texts())  # refused
    log.append([("a", "b")], serializer="yaml")  # refused
    log.append(Stream(), value=5)  # refused
    log.append("text")  # refused
    log.append(b"bytes")  # refused
    log.append([b"value"])  # refused
    log.append([(b"k",)])  # refused
    log.append([(b"k", b"v", "now")])  # refused
    log.append([(b"k", b"v", 7.5)])  # refused
    log.append([(b"k", b"v", 7, [("h", "1")])])  # refused
    log.append([(b"k", b"v", 7, [(b"h", b"1")])])  # refused
    log.append([(b"k", b"v", 7, [], 5)])  # refused
    log.append({b"k": b"v"})  # refused
    log.append(klog.Record(b"k", b"v"))  # refused
    log.append(None)  # refused
    log.append(7)  # refused
    log.append(later())  # refused
    log.append([(b"k", b"v")], compression=3)  # refused
    logs.append("t", [("a", "b")])  # refused
    logs.append("t", "text")  # refused
    record.encode([("a", "b")])  # refused
    record.BatchBuilder().extend([("a", "b")])  # refused
    klog.Record("k", b"v")  # refused
    klog.Record(b"k")  # refused


async def bad_async(log: klog.Log) -> None:
    await log.append_async([("a", "b")])  # refused
"""


def refused_lines(path: Path) -> set[int]:
    """mypy's cache may report errors with the folder of an earlier run of the same program."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [line.split(":", 2) for line in done.stdout.splitlines() if ": error:" in line]
    assert all(Path(name).name == path.name for name, *_ in found), done.stdout
    return {int(number) for _, number, _ in found}


def test_only_documented_forms_of_records_are_accepted(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs: mypy")
    program = tmp_path / "append_every_form.py"
    program.write_text(PROGRAM)
    wanted = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")}
    assert refused_lines(program) == wanted
