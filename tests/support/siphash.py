"""SipHash with 128 bits of output, from its paper: the model of csrc/keymap.c."""

from __future__ import annotations

import struct

_MASK = 2**64 - 1


def _rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & _MASK


def _round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & _MASK
    v[2] = (v[2] + v[3]) & _MASK
    v[1], v[3] = _rotate(v[1], 13) ^ v[0], _rotate(v[3], 16) ^ v[2]
    v[0] = (_rotate(v[0], 32) + v[3]) & _MASK
    v[2] = (v[2] + v[1]) & _MASK
    v[3], v[1] = _rotate(v[3], 21) ^ v[0], _rotate(v[1], 17) ^ v[2]
    v[2] = _rotate(v[2], 32)


def siphash128(secret: bytes, data: bytes, rounds: int, last_rounds: int) -> bytes:
    """SipHash-<rounds>-<last_rounds>-128."""
    k0, k1 = struct.unpack("<QQ", secret)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        for _ in range(rounds):
            _round(v)
        v[0] ^= word
    out = b""
    for part, mark in ((2, 0xEE), (1, 0xDD)):
        v[part] ^= mark
        for _ in range(last_rounds):
            _round(v)
        out += struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    return out
