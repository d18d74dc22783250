"""What all SASL mechanisms have in common: an exchange of messages that ends with a user, or is refused."""

from __future__ import annotations

from typing import Protocol

PLAIN = "PLAIN"
SCRAM = SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


class Refused(Exception):
    """The client is not authenticated. The text goes to the client: it says nothing about users or keys."""


class Exchange(Protocol):
    """One authentication of one client. One thread at a time.

    user: the name that the client claims, once it has; proven only when `complete` is true.
    """

    user: str
    complete: bool

    def respond(self, message: bytes) -> bytes:
        """Take the client's next message. Returns the server's. Raises Refused, also for messages that are not of the
        mechanism; nothing else."""
