"""sarama, from the Go module proxy: the checks of sarama_checks.go. Its own tests need five brokers in containers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.clients.servers import Server
from tests.clients.suite.base import Outcome, Outcomes, Suite, command, need

__all__ = ["SUITE"]

MODULE = "github.com/IBM/sarama@v1.61.1"
_CHECKS = Path(__file__).with_name("sarama_checks.go")
_CHECK = re.compile(r'^\t"(\w+)": func\(name string\)', re.MULTILINE)
_RESULT = re.compile(r"^(passed|failed) (\w+)", re.MULTILINE)
_OUTCOMES: dict[str, Outcome] = {"passed": "passed", "failed": "failed"}


def _prepare(folder: Path) -> None:
    need("go")
    command(["go", "mod", "init", "checks"], cwd=folder)
    command(["go", "get", MODULE], cwd=folder)


def _run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
    checks = [
        name for name in _CHECK.findall(_CHECKS.read_text()) if name not in without and (not only or name in only)
    ]
    shutil.copy(_CHECKS, folder / "main.go")
    command(["go", "build", "-o", "checks", "."], cwd=folder)
    output = command(["./checks", server.bootstrap, *checks], cwd=folder, log=log, check=False, timeout=900)
    found: Outcomes = dict.fromkeys(checks, "failed")  # a check without a result has failed
    for word, name in _RESULT.findall(output):
        found[name] = _OUTCOMES[word]
    return found


SUITE = Suite("sarama", MODULE, _prepare, _run)
