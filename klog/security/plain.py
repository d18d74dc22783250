"""SASL PLAIN, server side. RFC 4616; Kafka: PlainSaslServer.

    message := [authorization id] NUL user NUL password      UTF-8

The password crosses the network as it is, so a listener without TLS offers PLAIN only if that is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from klog.security.exchange import Refused
from klog.security.scram import USER_BYTES_MAX

MESSAGE_BYTES_MAX = 1 << 16  # a password may be a token of some KiB
INVALID = "Authentication failed: Invalid username or password"


class PlainUsers:
    """The users of one listener. Immutable: any thread. It keeps keyed digests of the passwords, under a key of this
    process."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = os.urandom(32)
        self._digests = {user: self._digest(password) for user, password in passwords.items()}
        self._none = os.urandom(32)

    def _digest(self, password: str) -> bytes:
        import hmac  # with OpenSSL: for listeners with SASL

        return hmac.digest(self._key, password.encode(), "sha256")

    @property
    def names(self) -> list[str]:
        """All users, sorted."""
        return sorted(self._digests)

    def has(self, user: str, password: str) -> bool:
        """Is this the user's password? Takes as long for an unknown user, and compares in constant time."""
        import hmac

        return hmac.compare_digest(self._digest(password), self._digests.get(user, self._none))

    def __repr__(self) -> str:
        return f"PlainUsers({len(self._digests)} users)"


class PlainExchange:
    """One authentication by PLAIN: a single message."""

    __slots__ = ("_users", "complete", "user")

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.user = ""
        self.complete = False

    def respond(self, message: bytes) -> bytes:
        """Return the empty message of a client that is authenticated. Raises Refused."""
        if self.complete:
            raise Refused("Invalid SASL/PLAIN response: a single message expected")
        if len(message) > MESSAGE_BYTES_MAX:
            raise Refused(f"Invalid SASL/PLAIN response: longer than {MESSAGE_BYTES_MAX} bytes")
        parts = message.split(b"\0", 3)
        if len(parts) != 3:
            raise Refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            authorization, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise Refused("Invalid SASL/PLAIN response: not UTF-8") from None
        if not user:
            raise Refused("Authentication failed: username not specified")
        if not password:
            raise Refused("Authentication failed: password not specified")
        if len(parts[1]) > USER_BYTES_MAX:
            raise Refused(INVALID)
        self.user = user
        if not self._users.has(user, password):
            raise Refused(INVALID)
        if authorization not in ("", user):
            raise Refused("Authentication failed: Client requested an authorization id that is different from username")
        self.complete = True
        return b""
