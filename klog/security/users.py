"""The SCRAM credentials of users: `klog-users.json` in the first log.dir. Kafka: ScramControlManager, ScramImage.

    {"version": 1, "secret": "<base64>", "users": {"<name>": {"SCRAM-SHA-256": {"iterations": 4096, "salt": "<base64>",
     "stored_key": "<base64>", "server_key": "<base64>"}}}, "crc32c": N}

secret: a key of this server, from which the salts of unknown users are computed. They stay the same after a restart,
and have the length and the iterations that most stored ones have, so they do not show who exists.
"""

from __future__ import annotations

import base64
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.disk import Files, RealFiles
from klog.protocol import ApiKey
from klog.security import scram
from klog.security.saslprep import is_prepared
from klog.security.scram import MECHANISMS, Mechanism, ScramCredential
from klog.security.state_file import Malformed, StateFile

if TYPE_CHECKING:
    from klog.security.context import Context

FILE = "klog-users.json"
_SECRET_BYTES = 32
_SALT_BYTES = 26  # of Kafka's own tools
Credentials = dict[str, dict[str, ScramCredential]]  # by user, then mechanism


class Users:
    """The credentials, and the requests that read and change them. Any thread; `_lock` guards changes, and reads take
    what was there last.

    directory: the first log.dir. Raises CorruptCheckpoint, NewerFormat, PermissionError for its file.
    """

    def __init__(self, directory: str, files: Files | None = None) -> None:
        self._lock = threading.Lock()
        self._file = StateFile(directory, FILE, files or RealFiles())
        empty: Credentials = {}
        self._secret, self._users = self._file.load(_decoded, (os.urandom(_SECRET_BYTES), empty))
        self._usual = _usual_of(self._users)

    def names(self) -> list[str]:
        """All users, sorted."""
        return sorted(self._users)

    def of(self, user: str) -> Mapping[str, ScramCredential]:
        """The credentials of a user by mechanism; empty for an unknown one."""
        return dict(self._users.get(user, {}))

    def credential(self, mechanism: Mechanism, user: str) -> ScramCredential:
        """The credential to authenticate a user with; for an unknown one, one that no password fits. Both take the same
        time."""
        made_up = self._made_up(mechanism, user)
        return self._users.get(user, {}).get(mechanism.name, made_up)

    def _made_up(self, mechanism: Mechanism, user: str) -> ScramCredential:
        import hmac  # with OpenSSL: for listeners with SASL

        iterations, size = self._usual[mechanism.name]

        def derived(purpose: str, size: int) -> bytes:
            key = f"{mechanism.name} {purpose} {user}".encode()
            blocks = (hmac.digest(self._secret, bytes([number]) + key, "sha512") for number in range(-(-size // 64)))
            return b"".join(blocks)[:size]

        keys = derived("keys", 2 * mechanism.size)
        return ScramCredential(iterations, derived("salt", size), keys[: mechanism.size], keys[mechanism.size :])

    def set_password(self, user: str, mechanism: str, password: str, *, iterations: int = scram.ITERATIONS_MIN) -> None:
        """Give a user a password for a mechanism, durably. Raises ValueError, TypeError, OSError; no error has the
        password in it."""
        arguments.text("user", user)
        arguments.chosen("mechanism", mechanism, tuple(MECHANISMS))
        iterations = arguments.whole("iterations", iterations, scram.ITERATIONS_MIN, scram.ITERATIONS_MAX)
        check_user(user)
        if not isinstance(password, str):
            raise TypeError("password: a str expected")
        if not is_prepared(password):
            raise ValueError("password: it is empty, or has characters that SASLprep (RFC 4013) changes or forbids")
        salt = os.urandom(_SALT_BYTES)
        salted = scram.salted_password(MECHANISMS[mechanism], password, salt, iterations)
        self.change({user: {mechanism: scram.credential_of(MECHANISMS[mechanism], salted, salt, iterations)}})

    def change(self, changes: Mapping[str, Mapping[str, ScramCredential | None]]) -> None:
        """Set credentials by user and mechanism, or remove them (None), durably; all or none. Raises OSError."""
        with self._lock:
            changed: Credentials = dict(self._users)
            for user, credentials in changes.items():
                merged: dict[str, ScramCredential | None] = {**changed.get(user, {}), **credentials}
                left = {name: credential for name, credential in merged.items() if credential is not None}
                if left:
                    changed[user] = left
                else:
                    changed.pop(user, None)
            self._file.save({"secret": _text(self._secret), "users": _encoded(changed)})
            self._users, self._usual = changed, _usual_of(changed)

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """DescribeUserScramCredentials and AlterUserScramCredentials. The second one waits for the disk."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self._describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._alter,
        }

    # Their module is loaded by the first request: few brokers get one.

    def _describe(self, context: Context, request: Any) -> Any:
        from klog.security import scram_requests

        return scram_requests.describe(self, context, request)

    def _alter(self, context: Context, request: Any) -> Any:
        from klog.security import scram_requests

        return scram_requests.alter(self, context, request)

    def __repr__(self) -> str:
        return f"Users({self._file.path!r}, {len(self._users)} users)"


def check_user(user: str) -> None:
    """Raises ValueError for a name that SCRAM clients would prepare in different ways, or that is too long."""
    if len(user.encode()) > scram.USER_BYTES_MAX:
        raise ValueError(f"user: at most {scram.USER_BYTES_MAX} bytes")
    if not is_prepared(user):
        raise ValueError(f"user={user!r}: it is empty, or has characters that SASLprep (RFC 4013) changes or forbids")


def _usual_of(users: Credentials) -> dict[str, tuple[int, int]]:
    """(iterations, size of the salt) that most credentials of each mechanism have."""
    found = {}
    for mechanism in MECHANISMS:
        seen = Counter(
            (each[mechanism].iterations, len(each[mechanism].salt)) for each in users.values() if mechanism in each
        )
        found[mechanism] = seen.most_common(1)[0][0] if seen else (scram.ITERATIONS_MIN, _SALT_BYTES)
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _encoded(users: Credentials) -> dict[str, Any]:
    return {
        user: {
            mechanism: {
                "iterations": each.iterations,
                "salt": _text(each.salt),
                "stored_key": _text(each.stored_key),
                "server_key": _text(each.server_key),
            }
            for mechanism, each in sorted(credentials.items())
        }
        for user, credentials in sorted(users.items())
    }


def _decoded(document: Mapping[str, Any]) -> tuple[bytes, Credentials]:
    users: Credentials = {}
    for user, credentials in document["users"].items():
        try:
            check_user(user)
        except ValueError as error:
            raise Malformed(str(error)) from None
        users[user] = {name: _credential(user, name, each) for name, each in credentials.items()}
        if not users[user]:
            raise Malformed(f"user {user!r} has no credential")
    return _bytes(document["secret"], "secret", _SECRET_BYTES, _SECRET_BYTES), users


def _credential(user: str, name: str, each: Mapping[str, Any]) -> ScramCredential:
    mechanism, iterations, where = MECHANISMS.get(name), each["iterations"], f"{name} of user {user!r}"
    if mechanism is None:
        raise Malformed(f"unknown mechanism {where}")
    if type(iterations) is not int or not scram.ITERATIONS_MIN <= iterations <= scram.ITERATIONS_MAX:
        raise Malformed(f"iterations of {where}")
    return ScramCredential(
        iterations,
        _bytes(each["salt"], f"salt of {where}", 1, scram.SALT_BYTES_MAX),
        _bytes(each["stored_key"], f"stored_key of {where}", mechanism.size, mechanism.size),
        _bytes(each["server_key"], f"server_key of {where}", mechanism.size, mechanism.size),
    )


def _bytes(text: str, where: str, low: int, high: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise Malformed(where) from None
    if not low <= len(data) <= high:
        raise Malformed(f"size of {where}")
    return data
