"""Fill in the counts of docs/guarantees.md: python -m tools.guarantee_counts FILE

FILE is the output of `pytest -rP`. Its lines "count: N WHAT, ..." are summed up by WHAT.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "guarantees.md"
BEGIN = "<!-- written by python -m tools.guarantee_counts -->\n"
END = "<!-- end of what is written -->"
_COUNT = re.compile(r"count: (\d+) ([^,\n]+)")


def counts(output: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for number, what in _COUNT.findall(output):
        found[what] += int(number)
    return found


def table(found: Counter[str]) -> str:
    rows = [f"| {what} | {number:,} |\n" for what, number in sorted(found.items())]
    return "".join(["| counted | how many |\n", "| --- | ---: |\n", *rows])


def main(path: str) -> int:
    found = counts(Path(path).read_text())
    if not found:
        print(f"{path} has no line 'count: N WHAT': run the deep tests with -rP", file=sys.stderr)
        return 1
    before, begin, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + begin + table(found) + END + rest.partition(END)[2])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
