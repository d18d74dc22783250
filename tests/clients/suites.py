"""Run a client's own test suite against a broker, and compare its failures with the known ones.

    python -m tests.clients.suites franz-go --server klog
    python -m tests.clients.suites librdkafka --server kafka --only 0011

allow/<suite>.toml lists the tests that fail for a known reason, by broker. They run, and one that passes is reported,
too. The tests in [left_out] do not run. A test in [races] may fail on any broker, depending on the timing, for the
reason given: if it fails, it runs once more, alone. FINDINGS.md has the results.
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.clients.servers import KINDS, serve
from tests.clients.suite.base import HOME, Outcomes, Suite, Unavailable, prepared

__all__ = ["SUITES", "Report", "load", "run"]

SUITES = (
    "franz-go",
    "librdkafka",
    "librdkafka-848",
    "java",
    "kafka-python",
    "kafkajs",
    "sarama",
    "rskafka",
)
_ALLOW = Path(__file__).parent / "allow"


@dataclass(frozen=True)
class Report:
    """The outcomes of a run, compared with the expected ones."""

    suite: str
    kind: str
    outcomes: Outcomes
    excluded: Mapping[str, str]  # test: reason
    left_out: Mapping[str, str]
    seconds: float
    log: Path

    def _of(self, outcome: str, *, excluded: bool) -> list[str]:
        return sorted(
            name for name, found in self.outcomes.items() if found == outcome and (name in self.excluded) == excluded
        )

    @property
    def failed(self) -> list[str]:
        """Failed tests that the list does not exclude."""
        return self._of("failed", excluded=False)

    @property
    def unexpected_passes(self) -> list[str]:
        """Passed tests that the list excludes."""
        return self._of("passed", excluded=True)

    def table(self) -> str:
        """The counts, then the names of the tests whose outcome is not expected."""
        rows = [
            ("passed", len(self._of("passed", excluded=False))),
            ("failed", len(self.failed)),
            ("excluded", len(self._of("failed", excluded=True)) + len(self.left_out)),
            ("unexpected passes", len(self.unexpected_passes)),
            (
                "skipped by the suite",
                len(self._of("skipped", excluded=False)) + len(self._of("skipped", excluded=True)),
            ),
        ]
        lines = [f"{self.suite} on {self.kind}, {self.seconds:.0f} s, output in {self.log}"]
        lines += [f"  {name:<22}{count:>5}" for name, count in rows]
        lines += [f"  failed: {name}" for name in self.failed]
        lines += [f"  passes, but is in allow/{self.suite}.toml: {name}" for name in self.unexpected_passes]
        return "\n".join(lines)


def load(name: str) -> Suite:
    """The suite of this name."""
    suite: Suite = import_module(f"tests.clients.suite.{name.replace('-', '_')}").SUITE
    return suite


def known(suite: str, kind: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """The tests that allow/<suite>.toml excludes for a broker, those that it leaves out, and its races, each as
    {test: reason}."""
    path = _ALLOW / f"{suite}.toml"
    table = tomllib.loads(path.read_text()) if path.exists() else {}
    assert table.keys() <= {"both", "left_out", "races", *KINDS}, f"{path}: {sorted(table)}"
    return {**table.get("both", {}), **table.get(kind, {})}, table.get("left_out", {}), table.get("races", {})


def run(name: str, kind: str, only: Sequence[str] = ()) -> Report:
    """Run a suite, or the tests named in `only`, on a new broker. Raises Unavailable if the machine lacks a program
    for it."""
    suite = load(name)
    excluded, left_out, races = known(name, kind)
    log = HOME / f"{name}-{kind}.log"
    with prepared(suite) as folder:
        log.write_text("")
        began = time.monotonic()
        with serve(kind, suite.settings) as server:
            outcomes = suite.run(folder, server, only, list(left_out), log)
            if again := [test for test in races if outcomes.get(test) == "failed"]:
                outcomes |= suite.run(folder, server, again, list(left_out), log.with_stem(f"{log.stem}-again"))
        return Report(name, kind, outcomes, excluded, left_out, time.monotonic() - began, log)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all outcomes are as expected, 1 if not, 2 if the suite cannot run on this machine."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suites", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--server", choices=KINDS, default="klog")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEST")
    asked = parser.parse_args(arguments)
    try:
        report = run(asked.suite, asked.server, asked.only)
    except Unavailable as missing:
        print(f"needs: {missing}", file=sys.stderr)
        return 2
    print(report.table())
    return 1 if report.failed or report.unexpected_passes else 0


if __name__ == "__main__":
    sys.exit(main())
