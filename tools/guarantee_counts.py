"""Writes the counts of docs/guarantees.md: python -m tools.guarantee_counts FILE

FILE is the output of `make test-deep`. Its lines "count: N WHAT" at the end are summed up by WHAT.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections import Counter
from pathlib import Path

from bench.table import between, rows
from tests.support.counts import counts

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "guarantees.md"
BEGIN = "<!-- written by python -m tools.guarantee_counts -->"
STATES, SECONDS = "different crash states of a simulated disk", "CPU seconds of a simulated disk"


def table(found: Counter[str], when: str) -> str:
    """Return the table of the document. The CPU time appears as a rate."""
    shown = Counter(found)
    seconds = shown.pop(SECONDS, 0)
    body = [(what, f"{number:,}") for what, number in sorted(shown.items())]
    if seconds:
        body.append((f"{STATES}, per CPU-hour", f"{found[STATES] * 3600 // seconds:,}"))
    return "\n".join([when, "", *rows(("counted", "how many"), body, left=1)])


def main(path: str) -> int:
    found = counts(Path(path).read_text())
    if not found:
        print(f"{path} has no line 'count: N WHAT': keep the output of make test-deep", file=sys.stderr)
        return 1
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    day = datetime.datetime.fromtimestamp(Path(path).stat().st_mtime, datetime.UTC)
    when = f"Counted by the deep tests of commit {commit.strip()}, which ended on {day:%Y-%m-%d}:"
    DOCUMENT.write_text(between(DOCUMENT.read_text(), BEGIN, table(found, when)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
