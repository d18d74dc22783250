"""The schema language: how the files in schemas/ describe a message.

    section := name [versions ["flexible" N]]             its fields are indented below it, up to an empty line
    field   := name ":" type versions? option*            one a line; the fields of a struct are indented below it
    type    := scalar | Struct | "[" (scalar | Struct) "]", then "?" if it can be null, then the versions where it can
    option  := "= value" | "tag N" | "ignorable" | "classic"

Versions are "3+", "0-7" or "5"; without them a field is in every version. A struct without indented fields is one that
the same section declares above. "#" begins a comment.

    request, response    the sections of an API, whose versions are in api_keys.py
    another name         that of a message; N is its first flexible version

    = value    the default: an integer, true, false or null; without it 0, "", the zero UUID, an empty array, or a
               struct of defaults, also where null is possible
    tag N      the field is a tagged one
    ignorable  a value is dropped, not refused, where a version lacks the field
    classic    a length of 16 or 32 bits in flexible versions, too

Kafka: the JSON files of clients/src/main/resources/common/message, and MessageGenerator.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

SCALARS = ("bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid", "string", "bytes", "records")
STRUCT = "struct"
_SCALARS = frozenset(SCALARS)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_LAST = 1 << 15
ZERO_UUID = uuid.UUID(int=0)
_DEFAULTS = {"bool": False, "float64": 0.0, "uuid": ZERO_UUID, "string": "", "bytes": b"", "records": b""}


class Versions:
    """Versions from low to high, both included."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and (self.low, self.high) == (other.low, other.high)

    def __hash__(self) -> int:
        return hash((self.low, self.high))

    def __repr__(self) -> str:
        return f"Versions({self.low}, {self.high})"


ALWAYS, NEVER = Versions(0, _LAST), Versions(0, -1)


class Field:
    """kind: of SCALARS, or STRUCT with `struct`; of an element if is_array. tag: None for a plain field."""

    __slots__ = (
        "default",
        "is_array",
        "is_classic",
        "is_ignorable",
        "kind",
        "name",
        "nullable",
        "struct",
        "tag",
        "versions",
    )

    def __init__(self, name: str, kind: str, struct: Struct | None, is_array: bool, nullable: Versions) -> None:
        self.name, self.kind, self.struct, self.is_array, self.nullable = name, kind, struct, is_array, nullable
        self.versions = ALWAYS
        self.default: Any = None
        self.tag: int | None = None
        self.is_ignorable = self.is_classic = False


class Struct:
    """Fields in the order of the file."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[Field] = []


class Section:
    """One message: `top` has the name of the section; `structs` are those inside it, by name, in the file's order.

    versions, flexible: those of its line, or None.
    """

    __slots__ = ("flexible", "structs", "top", "versions")

    def __init__(self, name: str, versions: Versions | None = None, flexible: int | None = None) -> None:
        self.top, self.versions, self.flexible = Struct(name), versions, flexible
        self.structs: dict[str, Struct] = {}

    def __iter__(self) -> Iterator[Struct]:
        yield self.top
        yield from self.structs.values()


def parse(text: str) -> dict[str, Section]:
    """The sections of one file, by name.

    Raises ValueError with the line of the first mistake.
    """
    sections: dict[str, Section] = {}
    section = Section("")
    open_structs: list[tuple[int, Struct | None]] = []  # (indent of its line, the struct)
    for number, line in enumerate(text.splitlines(), 1):
        words = (line.partition("#")[0] if "#" in line else line).split()
        if not words:
            continue
        indent = line.index(words[0])
        try:
            if indent == 0:
                section = sections[words[0]] = _section(words)
                open_structs = [(0, section.top)]
                continue
            while open_structs[-1][0] >= indent:
                open_structs.pop()
            parent = open_structs[-1][1]
            if parent is None:
                raise ValueError("indented below a field that is not a new struct")
            made, is_new = _field(words, section)
            parent.fields.append(made)
            open_structs.append((indent, made.struct if is_new else None))
        except (ValueError, IndexError) as mistake:
            raise ValueError(f"line {number}: {line.strip()}: {mistake}") from None
    return sections


def _section(words: list[str]) -> Section:
    name, *rest = words
    if not rest:
        return Section(name)
    if rest[1:] and (len(rest) != 3 or rest[1] != "flexible"):
        raise ValueError("expected `name versions flexible N`")
    return Section(name, _versions(rest[0]), int(rest[2]) if rest[1:] else None)


def _field(words: list[str], section: Section) -> tuple[Field, bool]:
    """A field, and whether its line declares a struct."""
    name, typed, *rest = words
    kind, is_nullable, within = typed.partition("?")
    is_array = kind.startswith("[")
    if is_array:
        kind = kind[1:-1] if kind.endswith("]") else ""
    if not name.endswith(":") or not kind.isidentifier():
        raise ValueError("expected `name: type`")
    struct, is_new = None, False
    if kind not in _SCALARS:
        struct = section.structs.get(kind)
        if struct is None:
            is_new, struct = True, Struct(kind)
            section.structs[kind] = struct
        kind = STRUCT
    nullable = NEVER if not is_nullable else _versions(within) if within else ALWAYS
    made = Field(name[:-1], kind, struct, is_array, nullable)
    default = None
    left = iter(rest)
    for word in left:
        if word == "=":
            default = next(left, "")
        elif word == "tag":
            made.tag = int(next(left, ""))
        elif word == "ignorable":
            made.is_ignorable = True
        elif word == "classic":
            made.is_classic = True
        else:
            made.versions = _versions(word)
    made.default = _default(made, default)
    return made, is_new


def _versions(text: str) -> Versions:
    low, _, high = text.partition("-")
    is_open = text.endswith("+")
    low, high = (text[:-1], "") if is_open else (low, high or low)
    if not (low.isdecimal() and (is_open or high.isdecimal())):
        raise ValueError(f"{text!r} is not a range of versions")
    return Versions(int(low), _LAST if is_open else int(high))


def _default(made: Field, text: str | None) -> Any:
    """The default as a Python value; for arrays and structs None or, in place of an empty or default one, ..."""
    if text == "null":
        return None
    if made.is_array or made.struct is not None:
        return ...
    if text is None or made.kind in ("uuid", "string", "bytes", "records"):
        return _DEFAULTS.get(made.kind, 0)
    return _WORDS[text] if text in _WORDS else int(text, 0)
