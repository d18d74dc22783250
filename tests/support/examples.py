"""How many examples a property runs, and which health checks do not stop it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

OF_FIXTURES = [*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
"""suppress_health_check= of a property whose fixtures serve all its examples: it replaces the profile's list."""


def examples(*, deep: int, most: int | None = None) -> int:
    """Settings with the number of examples: `deep` in the deep profile; in any other profile the profile's number, but
    at most `most`, for a property whose examples take long."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "deep":
        return deep
    number: int = settings.default.max_examples
    return number if most is None else min(number, most)
