"""How many examples a property runs."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(*, deep: int) -> int:
    """The current profile's number; in the deep profile `deep`, for a property that needs more, or costs more."""
    return deep if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else settings.default.max_examples
