"""How many examples a property takes."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(*, deep: int) -> int:
    """The number of the profile in use; in the deep one `deep`, for a property that is worth more, or costs more."""
    return deep if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else settings.default.max_examples
