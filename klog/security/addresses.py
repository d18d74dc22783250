"""Addresses of clients as text."""

from __future__ import annotations

import socket


def comparable_host(host: str) -> str:
    """An address in one spelling, without Java's slash; other text as it is. An IPv6 address has many spellings, and a
    rule that denies one denies them all."""
    plain = host.removeprefix("/")
    if ":" not in plain:
        return plain
    try:
        packed = socket.inet_pton(socket.AF_INET6, plain.partition("%")[0])
    except OSError:
        return plain
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)


def is_address(text: str) -> bool:
    """Is this an IPv4 or IPv6 address? Names of hosts are not: to look one up could take long."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False
