"""kafkajs, from npm: the checks of kafkajs_checks.js. Its own tests start containers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.clients.servers import Server
from tests.clients.suite.base import Outcome, Outcomes, Suite, command, need

__all__ = ["SUITE"]

PACKAGE = "kafkajs@2.2.4"
_CHECKS = Path(__file__).with_name("kafkajs_checks.js")
_RESULT = re.compile(r"^(passed|failed) (\w+)", re.MULTILINE)
_CHECK = re.compile(r"^  async (\w+)\(name\)", re.MULTILINE)
_OUTCOMES: dict[str, Outcome] = {"passed": "passed", "failed": "failed"}


def _prepare(folder: Path) -> None:
    need("node", "npm")
    command(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, PACKAGE], cwd=folder)


def _run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
    checks = [
        name for name in _CHECK.findall(_CHECKS.read_text()) if name not in without and (not only or name in only)
    ]
    script = shutil.copy(_CHECKS, folder / _CHECKS.name)  # node_modules is in this folder
    output = command(["node", script, server.bootstrap, *checks], cwd=folder, log=log, check=False, timeout=1500)
    found: Outcomes = dict.fromkeys(checks, "failed")  # a check without a result has failed
    for word, name in _RESULT.findall(output):
        found[name] = _OUTCOMES[word]
    return found


SUITE = Suite("kafkajs", PACKAGE, _prepare, _run)
