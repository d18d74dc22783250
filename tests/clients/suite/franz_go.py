"""franz-go: the tests of its client package, pkg/kgo, from the Go module proxy."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.clients.servers import Server
from tests.clients.suite.base import Outcome, Outcomes, Suite, command, need

__all__ = ["SUITE"]

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.2"
_RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)  # of tests, not of their subtests
_STARTED = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)
_OUTCOMES: dict[str, Outcome] = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def _prepare(folder: Path) -> None:
    need("go")
    found = json.loads(command(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=folder))
    shutil.copytree(found["Dir"], folder / "src")
    for path in [folder / "src", *(folder / "src").rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
    command(["go", "test", "-c", "-o", folder / "kgo.test", "."], cwd=folder / "src" / "pkg" / "kgo")


def _run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
    arguments: list[str | Path] = [folder / "kgo.test", "-test.v", "-test.timeout", "15m"]
    if only:
        arguments += ["-test.run", "^(" + "|".join(only) + ")$"]
    if without:
        arguments += ["-test.skip", "^(" + "|".join(without) + ")$"]
    environment = {"KGO_SEEDS": server.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "2000"}
    output = command(arguments, cwd=folder / "src" / "pkg" / "kgo", log=log, env=environment, check=False, timeout=1000)
    return outcomes(output)


def outcomes(output: str) -> Outcomes:
    """The outcomes in the output of `go test -v`. A test that began and did not end has failed."""
    found: Outcomes = {name: "failed" for name in _STARTED.findall(output) if "/" not in name}
    for word, name in _RESULT.findall(output):
        found[name] = _OUTCOMES[word]
    return found


# TestShareGroupETL closes seven members that have records which they did not read: in Kafka 4.3.1 each of these
# deliveries counts, and a record that all of them had would be archived after the fifth.
SUITE = Suite("franz-go", f"{MODULE} {VERSION}", _prepare, _run, {"group.share.delivery.count.limit": 10})
