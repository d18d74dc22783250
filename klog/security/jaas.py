"""The value of a `sasl.jaas.config`: login modules with options. Kafka: JaasConfig.

    <class> required|requisite|sufficient|optional (<option>="<value>")* ;

Values may be words or in double or single quotes, with Java's escapes. Errors state the position, never the text, which
has passwords in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from klog.errors import InvalidConfig
from klog.values import dataclass, field

_FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One module. name: its Java class."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse(name: str, text: str) -> list[LoginModule]:
    """Return the modules of the property `name`. Raises InvalidConfig."""
    tokens = list(_tokens(name, text))
    modules, at = [], 0
    while at < len(tokens):
        end = next((number for number in range(at, len(tokens)) if tokens[number] == (";", False)), None)
        if end is None:
            raise InvalidConfig(f"{name}: the JAAS entry does not end with a semicolon")
        modules.append(_module(name, tokens[at:end]))
        at = end + 1
    if not modules:
        raise InvalidConfig(f"{name}: a JAAS entry expected, <login module> required <option>=<value>...;")
    return modules


def _module(name: str, tokens: list[tuple[str, bool]]) -> LoginModule:
    """tokens: of one entry, without its semicolon."""
    if len(tokens) < 2 or tokens[1][0].lower() not in _FLAGS:
        raise InvalidConfig(f"{name}: a login module and one of {', '.join(_FLAGS)} expected in the JAAS entry")
    options, rest = {}, tokens[2:]
    for number in range(0, len(rest), 3):
        part = rest[number : number + 3]
        if len(part) < 3 or part[1] != ("=", False) or part[2] == ("=", False):
            raise InvalidConfig(f"{name}: option number {number // 3 + 1} of the JAAS entry is not <option>=<value>")
        options[part[0][0]] = part[2][0]
    return LoginModule(tokens[0][0], options)


def _tokens(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """Words, quoted texts, `=` and `;`, each with whether it was quoted."""
    at = 0
    while at < len(text):
        letter = text[at]
        if letter.isspace():
            at += 1
        elif letter in "=;":
            yield letter, False
            at += 1
        elif letter in "\"'":
            value, at = _quoted(name, text, at)
            yield value, True
        else:
            start = at
            while at < len(text) and not text[at].isspace() and text[at] not in "=;\"'":
                at += 1
            yield text[start:at], False


def _quoted(name: str, text: str, start: int) -> tuple[str, int]:
    """Return the text in the quotes that begin at start, and the position after them."""
    found, at = [], start + 1
    while at < len(text) and text[at] != text[start]:
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            octal = _octal_digits(text, at)
            if octal:
                found.append(chr(int(octal, 8)))
                at += len(octal)
                continue
            found.append(_ESCAPES.get(text[at], text[at]))
        else:
            found.append(text[at])
        at += 1
    if at >= len(text):
        raise InvalidConfig(f"{name}: a quote in the JAAS entry is not closed")
    return "".join(found), at + 1


def _octal_digits(text: str, at: int) -> str:
    """Up to three, for a value of up to 0377."""
    size = 0
    while size < (3 if text[at] in "0123" else 2) and text[at + size : at + size + 1] in tuple("01234567"):
        size += 1
    return text[at : at + size]
