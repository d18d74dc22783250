"""Regular expressions in linear time, compared with Python's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.patterns import Pattern


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", ""]),
        ("a|b|", ["a", "b", ""], ["ab"]),
        ("my-app.*", ["my-app", "my-app-1"], ["my-ap", "x-my-app"]),
        ("(?i)Ab[c-d]", ["aBC", "abd"], ["abe"]),
        ("(?i)[^a]x", ["bX", "-x"], ["ax", "AX"]),
        ("a.c", ["abc", "a\u00fcc"], ["a\nc"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        (r"\d{2,3}\w\s\D", ["12a x", "123_\t-"], ["1a x", "1234a x", "12a 5"]),
        (r"[^\d_]+", ["abc", "-"], ["a1", "_", ""]),
        (r"[]a-]+", ["]", "a-"], ["b"]),
        (r"[\]x]", ["]", "x"], ["\\"]),
        ("^a$", ["a"], ["a\n", ""]),
        (r"\Aa\z", ["a"], ["b"]),
        ("a{0}b", ["b"], ["ab"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{,3}", ["a{,3}"], ["aa"]),
        ("a{x", ["a{x"], ["a"]),
        ("(?:ab)+?c??", ["ab", "ababc"], ["abcc"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        (r"\x41\x{1F600}\t\.", ["A\U0001f600\t."], ["A"]),
        ("a^b|a$b", [], ["ab", "a^b"]),
    ],
)
def test_what_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in yes if not compiled.matches(text)] == []
    assert [text for text in no if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *"()[*\\",
        *("a)", "[]", "[b-a]", r"[a-\d]", "a|+", r"\1", r"\k", r"\pL", "(?=a)", "(?<n>a)", "(?P<n>a)", "[[:alpha:]]"),
        *("a{2,1}", "a{1001}", "a{9999999}", r"\x4", r"\x{110000}", r"\x{}", "(" * 60 + ")" * 60),
    ],
)
def test_what_is_invalid(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(((a{1000}){1000}){1000})", "((((){1000}){1000}){1000})", "a" * 5000, "(a|b){999}{9}"]
)
def test_large_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        Pattern(pattern)


def test_time_is_linear() -> None:
    """Python's re would need 2^40 steps."""
    assert not Pattern("(a*)*b").matches("a" * 40)
    assert not Pattern("(a|a)*b|(a+)+c").matches("a" * 2000)
    assert Pattern("a?" * 50 + "a" * 50).matches("a" * 50)


_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "-", "1"])
_TREES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(_TREES, st.lists(st.text("ab1-", max_size=6), max_size=10))
def test_it_agrees_with_re(pattern: str, texts: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [compiled.matches(text) for text in texts] == [re.fullmatch(pattern, text) is not None for text in texts]


@given(st.text("()[]{}|*+?\\^$.-,ab19dwsxpk:iP<=", max_size=12), st.text("ab-", max_size=4))
def test_any_text_is_a_pattern_or_a_value_error(pattern: str, text: str) -> None:
    try:
        found = Pattern(pattern).matches(text)
    except ValueError:
        return
    assert isinstance(found, bool)
