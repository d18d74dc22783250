"""How many examples a property runs."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(*, deep: int, most: int | None = None) -> int:
    """The current profile's number, and at most `most`, for a property whose examples take long; in the deep profile
    `deep`, for one that needs more, or costs more."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "deep":
        return deep
    number: int = settings.default.max_examples
    return number if most is None else min(number, most)
