"""rskafka, from crates.io: its integration tests, which also cross-check with librdkafka's Rust binding."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.clients.servers import Server
from tests.clients.suite.base import Outcome, Outcomes, Suite, command, need

__all__ = ["SUITE"]

VERSION = "0.6.0"
# The locked versions of these dependencies do not compile any more.
_UPDATED = ("rsasl",)
# The tests need neither debug information nor incremental builds, which cost time.
_BUILD = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}
_BINARY = re.compile(r"^\s+Running tests/(\w+)\.rs", re.MULTILINE)
_RESULT = re.compile(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", re.MULTILINE)
_OUTCOMES: dict[str, Outcome] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}


def _prepare(folder: Path) -> None:
    need("cargo", "cmake", "gcc", "java")
    getter = folder / "getter"
    (getter / "src").mkdir(parents=True)
    (getter / "src" / "lib.rs").touch()
    (getter / "Cargo.toml").write_text(
        f'[package]\nname = "getter"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nrskafka = "={VERSION}"\n'
    )
    facts = json.loads(command(["cargo", "metadata", "-q", "--format-version", "1"], cwd=getter))
    (found,) = [each for each in facts["packages"] if each["name"] == "rskafka"]
    source = folder / "src"
    shutil.copytree(Path(found["manifest_path"]).parent, source)
    (source / "rust-toolchain.toml").unlink()  # the installed toolchain is used
    for dependency in _UPDATED:
        command(["cargo", "update", "-q", "-p", dependency], cwd=source)
    command(["cargo", "test", "-q", "--no-run", "--test", "*"], cwd=source, env=_BUILD)


def _run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
    environment = {
        **_BUILD,
        "TEST_INTEGRATION": "1",
        "KAFKA_CONNECT": server.bootstrap,
        "TEST_BROKER_IMPL": "kafka",
    }
    skips = [part for name in without for part in ("--skip", name)]
    arguments = [
        "cargo",
        "test",
        "--no-fail-fast",
        "--test",
        "*",
        "--color=never",
        "--",
        "--test-threads=2",
        *only,
        *skips,
    ]
    output = command(arguments, cwd=folder / "src", log=log, env=environment, check=False, timeout=1500)
    return outcomes(output)


def outcomes(output: str) -> Outcomes:
    """The outcomes in the output of `cargo test`, by file and test, without the unit tests, which need no broker."""
    parts = _BINARY.split(output)[1:]
    return {
        f"{file}::{name}": _OUTCOMES[word]
        for file, text in zip(parts[::2], parts[1::2], strict=True)
        for name, word in _RESULT.findall(text)
    }


SUITE = Suite("rskafka", VERSION, _prepare, _run, {"num.partitions": 1})
