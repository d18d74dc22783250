"""AES-128 of one block (FIPS 197), slow: for tests that build CMAC collisions under a known key."""

from __future__ import annotations


def _times(a: int, b: int) -> int:
    """Multiply in the field of x^8 + x^4 + x^3 + x + 1."""
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = a << 1 ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def _substitute(a: int) -> int:
    inverse = next((b for b in range(256) if _times(a, b) == 1), 0)
    return 0x63 ^ inverse ^ _turned(inverse, 1) ^ _turned(inverse, 2) ^ _turned(inverse, 3) ^ _turned(inverse, 4)


def _turned(a: int, by: int) -> int:
    return (a << by | a >> (8 - by)) & 0xFF


_BOX = bytes(map(_substitute, range(256)))


def _round_keys(key: bytes) -> list[bytes]:
    words, constant = [key[at : at + 4] for at in range(0, 16, 4)], 1
    while len(words) < 44:
        word = words[-1]
        if len(words) % 4 == 0:
            word = xor((word[1:] + word[:1]).translate(_BOX), bytes([constant, 0, 0, 0]))
            constant = _times(constant, 2)
        words.append(xor(words[-4], word))
    return [b"".join(words[at : at + 4]) for at in range(0, 44, 4)]


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def _mixed(block: bytes) -> bytes:
    out = bytearray()
    for at in range(0, 16, 4):
        a = block[at : at + 4]
        out += bytes(_times(a[i], 2) ^ _times(a[(i + 1) % 4], 3) ^ a[(i + 2) % 4] ^ a[(i + 3) % 4] for i in range(4))
    return bytes(out)


def encrypt(key: bytes, block: bytes) -> bytes:
    first, *middle, last = _round_keys(key)
    block = xor(block, first)
    for number, each in enumerate([*middle, last]):
        block = block.translate(_BOX)
        block = bytes(block[(at + 4 * (at % 4)) % 16] for at in range(16))
        block = xor(block if number == len(middle) else _mixed(block), each)
    return block
