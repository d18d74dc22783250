"""TLS of a connection, over memory: the loop receives and sends, this encrypts and decrypts. Kafka: SslTransportLayer.

Sessions are resumed: OpenSSL issues tickets, whose keys live as long as the context, and so as its listener.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Literal

from klog import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_READ_BYTES = 1 << 18
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# The attributes that have a name in RFC 2253. Java shows others by their number.
_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E)  # the tags of strings
_LONG_TAG = 0x1F  # of a tag that has more than one byte
_VERSION, _SUBJECT = 0xA0, 4  # the tag of the first field of a certificate, which may be missing, and a later field


def tls_context(
    certificate: str | os.PathLike[str],
    key: str | os.PathLike[str],
    *,
    client_auth: Literal["none", "requested", "required"] = "none",
    trusted: str | os.PathLike[str] | None = None,
    password: str | None = None,
) -> ssl.SSLContext:
    """A server's context: TLS 1.2 or newer, the server's order of ciphers, no renegotiation, no compression.

    certificate, key, trusted: PEM files; only the owner may read the key. password: of the key, if it is encrypted.
    client_auth: ssl.client.auth; the principal of a client with a certificate is its subject. Raises ValueError,
    OSError.
    """
    arguments.chosen("client_auth", client_auth, tuple(_CLIENT_AUTH))
    mode = os.stat(key).st_mode
    if mode & 0o077:
        raise ValueError(f"key={os.fspath(key)!r}: others may read it (mode {mode & 0o777:o}); chmod 600")
    if client_auth != "none" and trusted is None:
        raise ValueError("trusted=None: the certificates of clients are checked against those in this file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # Without a password OpenSSL asks at the terminal, and waits.
        context.load_cert_chain(certificate, key, password=password or "")
    except ssl.SSLError:
        raise ValueError(
            f"certificate={os.fspath(certificate)!r}: it is no PEM file with a certificate and its key, or the key is "
            "encrypted with another password than ssl.key.password"
        ) from None
    if trusted is not None:
        try:
            context.load_verify_locations(trusted)
        except ssl.SSLError:
            raise ValueError(f"trusted={os.fspath(trusted)!r}: it is no PEM file with certificates") from None
    context.verify_mode = _CLIENT_AUTH[client_auth]
    return context


def check_context(context: ssl.SSLContext) -> None:
    """Check that a server's context refuses old versions and has a certificate: a client in memory sees it. Raises
    TypeError, ValueError."""
    if not isinstance(context, ssl.SSLContext):
        raise arguments.wrong_type("context", context, "an ssl.SSLContext")
    if context.minimum_version not in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        raise ValueError(f"context: minimum_version is {context.minimum_version.name}; TLSv1_2 or TLSv1_3 expected")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        ends = [trusting.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)]
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    pass
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", None) != "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            raise ValueError(
                f"context: no handshake is possible with it, {error}; load a certificate and its key"
            ) from None


class TlsSession:
    """One connection's TLS. One thread at a time. established: the handshake is complete. principal: the peer's, by its
    certificate; None without. ended: the peer has announced the end. principal_of: see Listener."""

    __slots__ = ("_in", "_object", "_out", "_principal_of", "ended", "established", "principal")

    def __init__(self, context: ssl.SSLContext, principal_of: Callable[[str], str] | None = None) -> None:
        self._principal_of = principal_of
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=True)
        self.established = False
        self.ended = False
        self.principal: str | None = None

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer. Returns what they decrypt to; there may be output() then. Raises ssl.SSLError."""
        self._in.write(data)
        if not self.established and not self._shake():
            return b""
        found = []
        try:
            while part := self._object.read(_READ_BYTES):
                found.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(found)

    def _shake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        certificate = self._object.getpeercert(binary_form=True)
        if certificate:
            try:
                name = distinguished_name(certificate)
                self.principal = f"User:{name if self._principal_of is None else self._principal_of(name)}"
            except ValueError as error:
                raise ssl.SSLError(str(error)) from None
        self.established = True
        return True

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt all of it. Raises ssl.SSLError."""
        self._object.write(data)
        return self._out.read()

    def end(self) -> bytes:
        """Announce the end to the peer. Returns the bytes that do it."""
        try:
            self._object.unwrap()
        except ssl.SSLError:  # the peer has not announced its own end yet, or the session has failed
            pass
        return self._out.read()

    def output(self) -> bytes:
        """What TLS itself has to send: its handshake, alerts."""
        return self._out.read()


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate, in DER as OpenSSL has checked it, as text, most specific first: CN=broker,O=klog.
    RFC 2253, byte for byte as Java has it, since access rules name it. Raises ValueError for lengths that DER
    does not have, which OpenSSL reads."""
    (_, whole, _), *_ = _elements(certificate)
    (_, signed, _), *_ = _elements(whole)
    fields = [content for tag, content, _ in _elements(signed) if tag != _VERSION]
    names = [content for _, content, _ in _elements(fields[_SUBJECT])]
    return ",".join("+".join(_attribute(content) for _, content, _ in _elements(name)) for name in reversed(names))


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content, and all bytes of each element. Raises ValueError."""
    at = 0
    while at < len(der):
        begin, size = at, der[at + 1] if at + 1 < len(der) else 0xFF
        at += 2
        if size & 0x80:
            length = der[at : at + (size & 0x7F)]
            at += len(length)
            size = int.from_bytes(length)
            if size < 0x80 or not length[0]:  # also an indefinite length, of no bytes
                raise _not_der(begin)
        if der[begin] & _LONG_TAG == _LONG_TAG or at + size > len(der):
            raise _not_der(begin)
        yield der[begin], der[at : at + size], der[begin : at + size]
        at += size


def _not_der(position: int) -> ValueError:
    return ValueError(f"the client's certificate is not DER at byte {position} of an element; issue it again")


def _attribute(der: bytes) -> str:
    (_, number, _), (tag, value, whole) = _elements(der)
    dotted = _dotted(number)
    name = _NAMES.get(dotted)
    if name is None or tag not in _TEXTS:
        return f"{name or dotted}=#{whole.hex()}"
    return f"{name}={_escaped(value.decode(errors='replace'))}"


def _dotted(number: bytes) -> str:
    """An object identifier as text."""
    parts, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(value)
            value = 0
    root = min(parts[0] // 40, 2)
    return ".".join(map(str, (root, parts[0] - 40 * root, *parts[1:])))


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in ',=+<>#;"\\' else letter for letter in value)
    escaped = escaped.replace("\0", "\\00")
    inner = escaped.lstrip(" ")
    left = len(escaped) - len(inner)
    text = inner.rstrip(" ")
    return "\\ " * left + text + "\\ " * (len(inner) - len(text))
