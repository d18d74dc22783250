"""Reads the numbers that tests print: lines "count: N WHAT"."""

from __future__ import annotations

import re
from collections import Counter

_COUNT = re.compile(r"^count: (\d+) ([^,\n]+)", re.MULTILINE)


def counts(output: str) -> Counter[str]:
    """The sum of the numbers for each WHAT, which ends at a comma."""
    found: Counter[str] = Counter()
    for number, what in _COUNT.findall(output):
        found[what] += int(number)
    return found
