"""Fill in the counts of docs/guarantees.md: python -m tools.guarantee_counts FILE

FILE is the output of `pytest -rP`. Its lines "count: N WHAT, ..." are summed up by WHAT.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from bench.table import between, rows

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "guarantees.md"
BEGIN = "<!-- written by python -m tools.guarantee_counts -->"
_COUNT = re.compile(r"count: (\d+) ([^,\n]+)")


def counts(output: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for number, what in _COUNT.findall(output):
        found[what] += int(number)
    return found


def main(path: str) -> int:
    found = counts(Path(path).read_text())
    if not found:
        print(f"{path} has no line 'count: N WHAT': run the deep tests with -rP", file=sys.stderr)
        return 1
    body = [(what, f"{number:,}") for what, number in sorted(found.items())]
    table = "\n".join(rows(("counted", "how many"), body, left=1))
    DOCUMENT.write_text(between(DOCUMENT.read_text(), BEGIN, table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
