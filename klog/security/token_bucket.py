"""A bucket of tokens for a quota on rare, large events. Kafka: TokenBucket."""

from __future__ import annotations


class TokenBucket:
    """`bound` tokens a second flow in, up to those of `seconds`. Exhausted below 0. Under its owner's lock; `now`:
    seconds of the monotonic clock."""

    def __init__(self, bound: float, seconds: float, now: float) -> None:
        self.bound = bound
        self._seconds = seconds
        self._tokens = bound * seconds
        self._updated = now

    def take(self, now: float, count: float) -> None:
        """Take tokens, also more than there are."""
        self._refill(now)
        self._tokens -= count

    def wait_seconds(self, now: float) -> float:
        """How long until the bucket is not exhausted."""
        self._refill(now)
        return max(0.0, -self._tokens / self.bound)

    def _refill(self, now: float) -> None:
        self._tokens = min(self.bound * self._seconds, self._tokens + self.bound * (now - self._updated))
        self._updated = now

    def is_full(self, now: float) -> bool:
        """Is it as if nothing had been taken?"""
        self._refill(now)
        return self._tokens == self.bound * self._seconds
