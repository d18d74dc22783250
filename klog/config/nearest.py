"""Which known key somebody meant who typed an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known key that needs the fewest letters changed; None if all are far away. Either spelling."""
    wanted = name.replace("_", ".").lower()
    near = difflib.get_close_matches(wanted, list(known), n=5, cutoff=0.6)
    return min(near, key=lambda key: (distance(wanted, key), near.index(key)), default=None)


def distance(a: str, b: str) -> int:
    """How many letters must be put in, taken out or changed to make one into the other."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]
