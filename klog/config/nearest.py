"""Finds the known key that is nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known key that needs the fewest changed letters; None if none is near. Either spelling."""
    import difflib  # only a wrong key needs it

    wanted = name.replace("_", ".").lower()
    near = difflib.get_close_matches(wanted, list(known), n=5, cutoff=0.6)
    return min(near, key=lambda key: (distance(wanted, key), near.index(key)), default=None)


def distance(a: str, b: str) -> int:
    """Return how many letters must be inserted, removed or changed to get from one to the other."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]
