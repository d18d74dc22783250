r"""The syntax of RE2: text to a tree of sets of characters, assertions, sequences, choices and repeats.

    pattern  := branch ("|" branch)*
    branch   := (atom repeat?)*
    repeat   := ("*" | "+" | "?" | "{" n "}" | "{" n ",}" | "{" n "," m "}") "?"?       n, m up to 1000
    atom     := char | "." | "[" class "]" | "(" pattern ")" | "(?" flags ")" | "(?" flags ":" pattern ")"
              | "(?P<" name ">" pattern ")" | "^" | "$" | "\A" | "\z" | "\b" | "\B" | "\Q" text "\E" | escape

The texts that are matched have few different characters: a topic's name has letters, digits, ".", "_" and "-". So a
character class is a set of these, and the rest of Unicode matters only in that it matches nothing. Kafka: re2j.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

REPEAT_MAX = 1000
DEPTH_MAX = 100
_ASCII_WORD = frozenset(string.ascii_letters + string.digits + "_")
_PERL = {"d": string.digits, "w": string.ascii_letters + string.digits + "_", "s": "\t\n\f\r "}
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
}
_CATEGORIES = frozenset(
    (
        *("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No"),
        *("P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    )
)
# Scripts, with the first word of their characters' names.
_SCRIPTS = {
    **{name: name.upper() for name in ("Arabic", "Armenian", "Cyrillic", "Devanagari", "Georgian", "Greek", "Hangul")},
    **{name: name.upper() for name in ("Hebrew", "Hiragana", "Katakana", "Latin", "Tamil", "Thai")},
    "Han": "CJK",
}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}

# What has to hold between two characters.
BEGIN, END, BOUNDARY, NO_BOUNDARY = range(4)


class InvalidPattern(ValueError):
    """The text is not a regular expression."""


class Repeat(NamedTuple):
    """`least` times `node`, and up to `most` times; None: without end."""

    node: Node
    least: int
    most: int | None


class Sequence(NamedTuple):
    nodes: tuple[Node, ...]


class Choice(NamedTuple):
    nodes: tuple[Node, ...]


# A set of characters, one of the assertions, or a tree of these.
Node = frozenset[str] | int | Repeat | Sequence | Choice


class _Flags(NamedTuple):
    """(?i): both cases. (?s): "." matches a newline. (?U) changes nothing, because the whole text must match; (?m) does
    not, either."""

    ignore_case: bool = False
    dot_all: bool = False


class Parser:
    """Reads a pattern from left to right. characters: those that occur in the texts."""

    def __init__(self, text: str, characters: frozenset[str]) -> None:
        self._text = text
        self._at = 0
        self._characters = characters

    def parse(self) -> Node:
        node = self._choice(_Flags(), 0)
        if self._at < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _until(self, end: str, what: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise InvalidPattern(f"missing {end} after {what}")
        text = self._text[self._at : found]
        self._at = found + len(end)
        return text

    def _choice(self, flags: _Flags, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise InvalidPattern(f"more than {DEPTH_MAX} groups inside one another")
        branches: list[Node] = []
        nodes: list[Node] = []
        while (char := self._peek()) and char != ")":
            if self._take("|"):
                branches.append(_sequence(nodes))
                nodes = []
            elif self._text.startswith("(?", self._at):
                flags = self._group_with_flags(flags, nodes, depth)
            elif self._take("\\Q"):
                # Without \E the rest is literal.
                text, end, _ = self._text[self._at :].partition("\\E")
                self._at += len(text) + len(end)
                nodes.extend(self._literal(char, flags) for char in text)
                self._repeats(nodes)
            else:
                nodes.append(self._atom(flags, depth))
                self._repeats(nodes)
        branches.append(_sequence(nodes))
        if all(isinstance(branch, frozenset) for branch in branches):
            return frozenset().union(*branches)  # type: ignore[arg-type]
        return Choice(tuple(branches)) if len(branches) > 1 else branches[0]

    def _atom(self, flags: _Flags, depth: int) -> Node:
        char = self._peek()
        if char in "*+?":
            raise InvalidPattern(f"missing argument to repetition operator: {char}")
        self._at += 1
        if char == "(":
            return self._close(self._choice(flags, depth + 1))
        if char == "[":
            return self._char_class(flags)
        if char == "\\":
            return self._escape(flags)
        if char == ".":
            return self._characters if flags.dot_all else self._characters - {"\n"}
        if char == "^":
            return BEGIN
        if char == "$":
            return END
        return self._literal(char, flags)

    def _close(self, node: Node) -> Node:
        if not self._take(")"):
            raise InvalidPattern("missing )")
        return node

    def _group_with_flags(self, flags: _Flags, nodes: list[Node], depth: int) -> _Flags:
        """Read (?flags), (?flags:pattern) or a named group. Returns the flags for what follows."""
        self._at += 2
        if self._take("P<") or self._take("<"):
            name = self._until(">", "the name of a group")
            if not name or not set(name) <= _ASCII_WORD:
                raise InvalidPattern(f"invalid name of a group: {name!r}")
            inner = flags
        else:
            inner = self._flags(flags)
            if self._take(")"):
                return inner
            if not self._take(":"):
                raise InvalidPattern("invalid or unsupported syntax after (?")
        nodes.append(self._close(self._choice(inner, depth + 1)))
        self._repeats(nodes)
        return flags

    def _flags(self, flags: _Flags) -> _Flags:
        value, seen = True, False
        while (char := self._peek()) and char in "imsU-":
            self._at += 1
            if char == "-":
                if not value:
                    raise InvalidPattern("two - in the flags of a group")
                value = False
                seen = False
            else:
                seen = True
                if char == "i":
                    flags = flags._replace(ignore_case=value)
                elif char == "s":
                    flags = flags._replace(dot_all=value)
        if not value and not seen:
            raise InvalidPattern("no flag after - in a group")
        return flags

    def _repeats(self, nodes: list[Node]) -> None:
        """Read the operators after the last node. A second one needs a group, as in RE2; `?` alone is laziness."""
        counts = self._repeat()
        if counts is None:
            return
        if not nodes:
            raise InvalidPattern("missing argument to repetition operator")
        self._take("?")
        nodes[-1] = Repeat(nodes[-1], *counts)
        if self._repeat() is not None:
            raise InvalidPattern("invalid nested repetition operator")

    def _repeat(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_count(least) or (most and not _is_count(most)):
            return None  # a literal {
        self._at = end + 1
        low = int(least)
        high = None if comma and not most else int(most or least)
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise InvalidPattern(f"invalid repeat count: {{{least}{comma}{most}}}")
        return low, high

    # ---- characters ------------------------------------------------------------------------------------------------

    def _char_class(self, flags: _Flags) -> frozenset[str]:
        negated = self._take("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise InvalidPattern("missing closing ]")
            first = False
            if self._take("[:"):
                name = self._until(":]", "[:")
                some = _POSIX.get(name.removeprefix("^"))
                if some is None:
                    raise InvalidPattern(f"invalid character class: [:{name}:]")
                found |= self._some(some, negated=name.startswith("^"))
                continue
            low = self._class_char()
            if isinstance(low, frozenset):
                found |= low
                continue
            high: str | frozenset[str] = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._class_char()
            if isinstance(high, frozenset) or high < low:
                raise InvalidPattern(f"invalid character class range: {low}-")
            found |= {char for char in self._characters if low <= char <= high}
            if flags.ignore_case:
                found |= {char for char in self._characters if low <= char.swapcase() <= high}
        self._at += 1
        return self._some(found, negated=negated)

    def _some(self, characters: Iterable[str], *, negated: bool) -> frozenset[str]:
        return self._characters.difference(characters) if negated else self._characters.intersection(characters)

    def _class_char(self) -> str | frozenset[str]:
        char = self._peek()
        self._at += 1
        return self._escaped(in_class=True) if char == "\\" else char

    def _escape(self, flags: _Flags) -> Node:
        for letter, assertion in (("A", BEGIN), ("z", END), ("b", BOUNDARY), ("B", NO_BOUNDARY)):
            if self._take(letter):
                return assertion
        found = self._escaped(in_class=False)
        return found if isinstance(found, frozenset) else self._literal(found, flags)

    def _escaped(self, *, in_class: bool) -> str | frozenset[str]:
        """The character or class after a backslash."""
        char = self._peek()
        if not char:
            raise InvalidPattern("trailing \\ at the end of the expression")
        self._at += 1
        if char.lower() in _PERL:
            return self._some(_PERL[char.lower()], negated=char.isupper())
        if char in "pP":
            if self._take("{"):
                return self._unicode_class(self._until("}", "\\p{"), negated=char == "P")
            self._at += 1
            return self._unicode_class(self._text[self._at - 1 : self._at], negated=char == "P")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char == "C" and not in_class:
            return self._characters
        if char == "0" or (char in "1234567" and self._peek() in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._peek()
                self._at += 1
            return chr(int(digits, 8))
        if char.isascii() and char.isalnum():
            raise InvalidPattern(f"invalid escape sequence: \\{char}")
        return char

    def _literal(self, char: str, flags: _Flags) -> frozenset[str]:
        """The characters that a literal one stands for; none if no text has it."""
        return self._some((char, char.swapcase()) if flags.ignore_case else (char,), negated=False)

    def _unicode_class(self, name: str, *, negated: bool) -> frozenset[str]:
        import unicodedata  # few patterns need it

        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name == "Any":
            some = self._characters
        elif name in _CATEGORIES:
            some = frozenset(char for char in self._characters if unicodedata.category(char).startswith(name))
        elif name in _SCRIPTS or name in ("Common", "Inherited"):
            scripts = {char: unicodedata.name(char, "").partition(" ")[0] for char in self._characters}
            known = frozenset(_SCRIPTS.values())
            if name in _SCRIPTS:
                some = frozenset(char for char, first in scripts.items() if first.split("-")[0] == _SCRIPTS[name])
            else:
                some = frozenset(char for char, first in scripts.items() if first.split("-")[0] not in known)
                some = some if name == "Common" else frozenset()
        else:
            raise InvalidPattern(f"unknown class of characters: \\p{{{name}}}")
        return self._some(some, negated=negated)

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits = self._until("}", "\\x{")
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += len(digits)
            if len(digits) < 2:
                raise InvalidPattern("invalid escape sequence: \\x")
        if not digits or len(digits) > 8 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise InvalidPattern("invalid escape sequence: \\x")
        return chr(int(digits, 16))


def _sequence(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
