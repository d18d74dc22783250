"""PLAIN: RFC 4616, hostile messages, and passwords that are not visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.security.exchange import Refused
from klog.security.plain import PlainExchange, PlainUsers

USERS = PlainUsers({"alice": "wonder land", "bob": "\u00e9\u4e2d"})


def test_a_user_with_the_right_password_is_authenticated() -> None:
    for message, user in (
        (b"\0alice\0wonder land", "alice"),
        (b"alice\0alice\0wonder land", "alice"),
        ("\0bob\0\u00e9\u4e2d".encode(), "bob"),
    ):
        exchange = PlainExchange(USERS)
        assert exchange.respond(message) == b""
        assert exchange.complete and exchange.user == user
        with pytest.raises(Refused):
            exchange.respond(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "got 1"),
        (b"alice\0wonder land", "got 2"),
        (b"\0alice\0wonder land\0", "got 4"),
        (b"\0\0wonder land", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0wonder landx", "Invalid username or password"),
        (b"\0carol\0wonder land", "Invalid username or password"),
        (b"bob\0alice\0wonder land", "authorization id"),
        (b"\0alice\0\xff", "not UTF-8"),
        (b"\0" + b"a" * 1025 + b"\0x", "Invalid username or password"),
        (b"\0alice\0" + b"x" * 65536, "longer than"),
    ],
)
def test_others_are_refused(message: bytes, reason: str) -> None:
    exchange = PlainExchange(USERS)
    with pytest.raises(Refused, match=reason):
        exchange.respond(message)
    assert not exchange.complete


@given(st.binary(max_size=100))
def test_random_bytes_do_not_authenticate(message: bytes) -> None:
    exchange = PlainExchange(PlainUsers({"alice": "a password that is longer than a hundred bytes " * 3}))
    with pytest.raises(Refused):
        exchange.respond(message)


def test_the_passwords_are_not_kept() -> None:
    assert "wonder" not in repr(USERS) and USERS.names == ["alice", "bob"]
    held = [getattr(USERS, name) for name in vars(USERS)]
    assert "wonder land" not in repr(held)
