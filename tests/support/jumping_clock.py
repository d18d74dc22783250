"""A clock whose wall time a test sets."""

from __future__ import annotations

NOW = 1_700_000_000_000


class Jumping:
    """A wall clock that the test sets, forwards and back, and a monotonic one; neither runs scheduled tasks."""

    def __init__(self) -> None:
        self.wall, self.passed = NOW, 0.0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def pass_by(self, seconds: float) -> None:
        """Advance both clocks."""
        self.passed += seconds
        self.wall += round(seconds * 1000)
