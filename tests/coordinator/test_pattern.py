"""Regular expressions of subscriptions: RE2's syntax, whole names, linear time."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.pattern import InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("foo.*", ["foo", "foobar"], ["fo", "xfoo"]),
        ("foo|bar", ["foo", "bar"], ["foobar", ""]),
        ("|x", ["", "x"], ["xx"]),
        ("", [""], ["a"]),
        ("^foo$", ["foo"], ["foo1"]),
        (r"\Afoo\z", ["foo"], ["foo1"]),
        ("a^b", [], ["ab", "a^b"]),
        ("x{2,3}", ["xx", "xxx"], ["x", "xxxx"]),
        ("x{2}", ["xx"], ["x", "xxx"]),
        ("x{2,}?y", ["xxy", "xxxxy"], ["xy"]),
        ("(ab)+?", ["ab", "abab"], ["", "aba"]),
        ("(?:ab)??c", ["c", "abc"], ["bc"]),
        ("(?P<env>dev|prod)-.*", ["dev-a", "prod-"], ["test-a"]),
        ("(?<env>dev)", ["dev"], ["de"]),
        ("(?i)Foo", ["foo", "FOO"], ["fo"]),
        ("(?i:a)b", ["ab", "Ab"], ["aB"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?i)[a-c]", ["B"], ["D"]),
        ("[]a]", ["a"], ["]a"]),
        ("[a-]+", ["a-"], ["b"]),
        ("[^a-z]", ["1", "-"], ["q"]),
        (r"[\d_.]+", ["1.2_3"], ["a"]),
        (r"[\D]", ["a"], ["1"]),
        ("[[:alpha:]]+", ["Ab"], ["a1"]),
        ("[[:^digit:]]", ["a"], ["1"]),
        (r"\w+\.\w+", ["a.b"], ["a-b"]),
        (r"\pL\pN", ["a1"], ["1a"]),
        (r"\p{Lu}\P{Lu}\p{^Lu}", ["Aab"], ["AAb"]),
        (r"\p{Greek}*", [""], ["a"]),
        (r"\x61\x{62}\143", ["abc"], ["abd"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"orders\b.*", ["orders", "orders-1"], ["orders1"]),
        (r"orders\B.*", ["orders1"], ["orders", "orders-1"]),
        ("a{,2}", [], ["a", "aa"]),  # literal braces, which no name has
        ("()*(a*)*", ["", "aaa"], ["b"]),
        ("é|a", ["a"], ["e"]),
    ],
)
def test_names_that_match_a_pattern(pattern: str, matching: list[str], others: list[str]) -> None:
    found = Pattern(pattern)
    assert [name for name in matching + others if found.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(",
            ")",
            "a)",
            "[",
            "[]",
            "[b-a]",
            r"[a-\d]",
            "[[:letter:]]",
            "*",
            "a|*",
            "a**",
            "a+?+",
            "a{2}{3}",
            "a{1001}",
        ),
        *("a{3,2}", "\\", r"\1", r"\y", r"\xg0", r"\x{110000}", r"\p{Elvish}", r"\p{L", "(?=a)", "(?!a)", "(?<=a)"),
        *("(?z)", "(?i", "(?-)", "(?i-)", "(?P<>a)", "(?P<a-b>a)", "(?#x)", "(" * 101 + ")" * 101, "((a{1000}){1000})"),
        "(" * 90 + "){1000}" * 90,
    ],
)
def test_invalid_patterns(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*b", "a*a*a*a*a*a*a*a*a*a*b", "(a|b)*a(a|b){300}"]
)
def test_patterns_that_are_exponential_elsewhere_take_linear_time(pattern: str) -> None:
    """With Python's `re` each of these patterns takes practically endless time."""
    found = Pattern(pattern)
    assert not found.matches("a" * 248 + "-")


def _patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(
        ["a", "b", "-", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "(?:a|b-)", "^", "$", r"\b", r"\B"]
    )
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map("|".join),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}?"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
            inner.map(lambda text: f"({text})"),
        ),
        max_leaves=8,
    )


@given(_patterns(), st.lists(st.text("ab-.1", max_size=6), max_size=8))
def test_a_pattern_matches_as_in_the_regular_expressions_of_python(pattern: str, names: list[str]) -> None:
    ours, theirs = Pattern(pattern), re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    for name in names:
        # Empty names do not count: Kafka has none, and Python's \B never matches an empty string.
        assert ours.matches(name) == bool(theirs.fullmatch(name)) or not name


@given(st.text(st.sampled_from(string.punctuation + "ab1PQEpdxi"), max_size=20))
def test_any_text_is_a_pattern_or_invalid(text: str) -> None:
    try:
        Pattern(text).matches("a-1")
    except InvalidPattern:
        pass


# ---- texts of other characters, such as transactional ids ------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.c", ["abc", "a\u00fcc"], ["a\nc"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        (r"\d{2,3}\w\s\D", ["12a x", "123_\t-"], ["1a x", "1234a x", "12a 5"]),
        (r"[^\d_]+", ["abc", "-", "\u00fc"], ["a1", "_", ""]),
        (r"[\]x]", ["]", "x"], ["\\"]),
        (r"\x41\x{1F600}\t\.", ["A\U0001f600\t."], ["A"]),
        (r"\p{Lu}\p{Greek}\PL", ["A\u03b1-", "\u00dc\u03b11"], ["aa-", "A\u03b1a"]),
        (r"[[:punct:][:space:]]+", ["$ \t!"], ["$a"]),
        ("(?i)\u00e4x", ["\u00c4X"], ["ax"]),
        ("a{,3}", ["a{,3}"], ["aa"]),
    ],
)
def test_texts_of_any_characters(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern, frozenset().union(*yes, *no))
    assert [text for text in yes if not compiled.matches(text)] == []
    assert [text for text in no if compiled.matches(text)] == []
