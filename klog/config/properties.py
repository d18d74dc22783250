r"""Reads and writes Java's properties format, the format of a server.properties.

    line   := (blank | comment | entry) "\n"        comment begins with # or !; leading blanks are ignored
    entry  := key (blank* [=:] blank* | blank+) value        a final odd backslash continues on the next line
    escape := \t \n \r \f, \uXXXX, and \ before any other character for that character

The bytes are Latin-1, as for java.util.Properties.load. Of a key that occurs twice the last value counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = r"(?s)\\(u[0-9a-fA-F]{4}|.?)"
_KEY_END = r"(?s)(?:\\.|[^\\=: \t\f])*"
_SPECIAL = r"[\\=:#! \t\f\n\r]|[^\x20-\x7e]"


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the entries of a properties file."""
    with open(path, encoding="latin-1", newline="") as file:
        return parse_properties(file.read())


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties text."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        key = re.match(_KEY_END, line)
        assert key is not None  # the pattern also matches an empty string
        rest = line[key.end() :].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        values[_unescape(key[0])] = _unescape(rest)
    return values


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending is not None:
        yield pending


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    if "\\" not in text:
        return text
    # Java writes a character beyond U+FFFF as the escapes of its two UTF-16 units.
    units = re.sub(_ESCAPED, character, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "surrogatepass")


def format_properties(values: Mapping[str, str]) -> str:
    """Return the text with these entries, in ASCII."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in values.items())


def _escape(text: str) -> str:
    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        if " " <= character <= "~":
            return "\\" + character
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

    return re.sub(_SPECIAL, escaped, text)
