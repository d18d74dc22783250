"""SASL SCRAM-SHA-256 and SCRAM-SHA-512, server side. RFC 5802, RFC 7677; Kafka: ScramSaslServer, ScramMessages.

    client first   n,[a=authzid],n=user,r=nonce[,extensions]
    server first   r=nonce+ours,s=salt,i=iterations
    client final   c=base64(n,[a=authzid],),r=nonce+ours[,extensions],p=proof
    server final   v=signature

    StoredKey = H(HMAC(SaltedPassword, "Client Key"))      ServerKey = HMAC(SaltedPassword, "Server Key")

  S1  the server keeps StoredKey and ServerKey, which do not suffice to authenticate as a client, and no password.
  S2  the nonce of the client's final message is the whole nonce of the server's first one (CVE-2024-56128).
  S3  an unknown user gets the same messages as a known one with a wrong password.
  S4  keys and proofs are compared in constant time.

Channel binding is not offered: `y` is accepted and `p=` refused. Delegation tokens do not exist here: `tokenauth=true`
is refused. Other extensions are ignored.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable

from klog.security.exchange import SCRAM_SHA_256, SCRAM_SHA_512, Refused
from klog.security.saslprep import is_prepared
from klog.values import dataclass, field

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
MESSAGE_BYTES_MAX = 4096
USER_BYTES_MAX = 1024
NONCE_BYTES_MAX = 512
SALT_BYTES_MAX = 1024
_NONCE_BYTES = 24  # 32 characters, 192 bits


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A hash for SCRAM. number: in requests, as Kafka's ScramMechanism.type. size: of its digests, bytes."""

    name: str
    number: int
    hash: str
    size: int


MECHANISMS = {
    each.name: each for each in (Mechanism(SCRAM_SHA_256, 1, "sha256", 32), Mechanism(SCRAM_SHA_512, 2, "sha512", 64))
}
BY_NUMBER = {each.number: each for each in MECHANISMS.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is stored of a password."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations). Takes milliseconds, without the GIL."""
    import hashlib  # with OpenSSL, as hmac: for listeners with SASL

    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def credential_of(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    import hashlib
    import hmac

    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    stored_key = hashlib.new(mechanism.hash, client_key).digest()
    return ScramCredential(iterations, salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.hash))


class ScramExchange:
    """One authentication by SCRAM. credential_for: returns the credential of a user; of an unknown one, one that no
    password fits. nonce: the server's part, random unless a test gives it."""

    __slots__ = ("_credential", "_credential_for", "_first", "_header", "_mechanism", "_nonce", "complete", "user")

    def __init__(
        self, mechanism: Mechanism, credential_for: Callable[[str], ScramCredential], nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._credential_for = credential_for
        self._nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode() if nonce is None else nonce
        self._credential: ScramCredential | None = None
        self._header = ""  # GS2
        self._first = ""  # the client's first message without its header, a comma, the server's first message
        self.user = ""
        self.complete = False

    def respond(self, message: bytes) -> bytes:
        """Take the client's first, then its final message. Raises Refused."""
        if self.complete:
            raise Refused("Invalid SCRAM message: the exchange is complete")
        if len(message) > MESSAGE_BYTES_MAX:
            raise Refused(f"Invalid SCRAM message: longer than {MESSAGE_BYTES_MAX} bytes")
        if b"\0" in message:
            raise Refused("Invalid SCRAM message: NUL is not allowed")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise Refused("Invalid SCRAM message: not UTF-8") from None
        return (self._first_message(text) if self._credential is None else self._final_message(text)).encode()

    def _first_message(self, text: str) -> str:
        header, authorization, user, nonce, bare = _parse_first(text)
        if authorization not in ("", user):
            raise Refused("Authentication failed: Client requested an authorization id that is different from username")
        credential = self._credential_for(user)
        self.user, self._header, self._credential = user, header, credential
        self._nonce = nonce + self._nonce
        response = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._first = f"{bare},{response}"
        return response

    def _final_message(self, text: str) -> str:
        import hashlib
        import hmac

        assert self._credential is not None
        without_proof, binding, nonce, proof = _parse_final(text)
        if binding != base64.b64encode(self._header.encode()).decode():
            raise self._failed()
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()) or len(proof) != self._mechanism.size:
            raise self._failed()
        signed = f"{self._first},{without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._mechanism.hash)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash, client_key).digest()
        if not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise self._failed()
        self.complete = True
        verifier = hmac.digest(self._credential.server_key, signed, self._mechanism.hash)
        return f"v={base64.b64encode(verifier).decode()}"

    def _failed(self) -> Refused:
        return Refused(invalid_credentials(self._mechanism.name))


def invalid_credentials(mechanism: str) -> str:
    """The error text for the client, the same whether the user exists or not."""
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


def _parse_first(text: str) -> tuple[str, str, str, str, str]:
    """Return (GS2 header, authorization id, user, nonce, message without the header)."""
    flag, _, rest = text.partition(",")
    authorization, comma, bare = rest.partition(",")
    if flag not in ("n", "y") or not comma:
        raise Refused("Invalid SCRAM client first message: channel binding is not supported")
    if authorization and not authorization.startswith("a="):
        raise Refused("Invalid SCRAM client first message: authorization id expected")
    user, *others = bare.split(",")
    if not user.startswith("n=") or not others or not others[0].startswith("r="):
        raise Refused("Invalid SCRAM client first message: user and nonce expected")
    nonce, extensions = others[0][2:], others[1:]
    _check_extensions(extensions)
    if any(each.lower() == "tokenauth=true" for each in extensions):
        raise Refused("Authentication failed: delegation tokens are not supported")
    if not 0 < len(nonce) <= NONCE_BYTES_MAX or not all("\x21" <= letter <= "\x7e" for letter in nonce):
        raise Refused("Invalid SCRAM client first message: invalid nonce")
    name = _name(user[2:])
    return f"{flag},{authorization},", _name(authorization[2:]) if authorization else "", name, nonce, bare


def _parse_final(text: str) -> tuple[str, str, str, bytes]:
    """Return (message without the proof, channel binding, nonce, proof)."""
    without_proof, comma, proof = text.rpartition(",p=")
    binding, *others = without_proof.split(",")
    if not comma or not binding.startswith("c=") or not others or not others[0].startswith("r="):
        raise Refused("Invalid SCRAM client final message: channel binding, nonce and proof expected")
    _check_extensions(others[1:])
    try:
        decoded = binascii.a2b_base64(proof, strict_mode=True)
    except ValueError:
        raise Refused("Invalid SCRAM client final message: the proof is not base64") from None
    if binascii.b2a_base64(decoded, newline=False).decode() != proof:  # bits that no byte uses
        raise Refused("Invalid SCRAM client final message: the proof is not base64")
    return without_proof, binding[2:], others[0][2:], decoded


def _check_extensions(extensions: list[str]) -> None:
    for each in extensions:
        name, sign, value = each.partition("=")
        if not (sign and value and name.isascii() and name.isalpha()):
            raise Refused("Invalid SCRAM message: invalid extension")


def _name(encoded: str) -> str:
    """A SASL name: `=2C` is a comma and `=3D` an equals sign. Raises Refused."""
    head, *rest = encoded.split("=")
    if any(part[:2] not in ("2C", "3D") for part in rest):
        raise Refused("Invalid SCRAM client first message: invalid name")
    name = head + "".join(("," if part[:2] == "2C" else "=") + part[2:] for part in rest)
    if len(name.encode()) > USER_BYTES_MAX or not is_prepared(name):
        raise Refused("Invalid SCRAM client first message: invalid name")
    return name
