"""A certificate as bytes that OpenSSL parses: a subject, a key that is none, and a signature that is wrong."""

from __future__ import annotations

from collections.abc import Iterable

_SEQUENCE, _SET, _NUMBER, _BITS, _OID, _OCTETS, _TIME, _TRUE = 0x30, 0x31, 0x02, 0x03, 0x06, 0x04, 0x17, 0x01
_ECDSA, _RSA, _BASIC_CONSTRAINTS = "1.2.840.10045.4.3.2", "1.2.840.113549.1.1.1", "2.5.29.19"
Attribute = tuple[str, int, bytes]
"""Object identifier, tag and bytes of the value."""


def element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    out = bytearray()
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        out += bytes(reversed(digits))
    return element(_OID, bytes(out))


def name(subject: Iterable[Iterable[Attribute]]) -> bytes:
    """subject: relative names, each of one or more attributes."""
    return element(
        _SEQUENCE,
        *(
            element(_SET, *(element(_SEQUENCE, oid(kind), element(tag, value)) for kind, tag, value in each))
            for each in subject
        ),
    )


def certificate(name: bytes) -> bytes:
    """name: of the subject, and of the issuer."""
    algorithm = element(_SEQUENCE, oid(_ECDSA))
    time = element(_TIME, b"260101000000Z")
    key = element(_SEQUENCE, element(_SEQUENCE, oid(_RSA), b"\5\0"), element(_BITS, b"\0", bytes(8)))
    is_ca = element(_OCTETS, element(_SEQUENCE, element(_TRUE, b"\xff")))
    extensions = element(0xA3, element(_SEQUENCE, element(_SEQUENCE, oid(_BASIC_CONSTRAINTS), is_ca)))
    signed = element(
        _SEQUENCE,
        element(0xA0, element(_NUMBER, b"\2")),
        element(_NUMBER, b"\1"),
        algorithm,
        name,
        element(_SEQUENCE, time, time),
        name,
        key,
        extensions,
    )
    return element(_SEQUENCE, signed, algorithm, element(_BITS, b"\0", bytes(8)))
