"""SASLprep: the examples of RFC 4013, section 3, and others."""

from __future__ import annotations

import pytest

from klog.security.saslprep import is_prepared, prepared


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0007", None),
        ("\u0627\u0031", None),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("\u0627x\u0628", None),
        ("\u00ad", None),
        ("", None),
        ("\ue000", None),
        ("\U0001f600", None),  # not in Unicode 3.2
        ("\u200e", None),
        ("\ufffd", None),
    ],
)
def test_the_text_after_preparation(text: str, expected: str | None) -> None:
    assert prepared(text) == expected
    assert is_prepared(text) == (expected == text)


def test_ascii_is_prepared_if_it_can_be_printed() -> None:
    for number in range(128):
        assert is_prepared(chr(number)) == (32 <= number < 127)
        assert is_prepared(chr(number)) == (prepared(chr(number)) == chr(number))
