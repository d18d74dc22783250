"""The schema language: what the files in schemas/ say about a message.

    section := "request" | "response" | "data"
    field   := name ":" type versions? option*            one a line; the fields of a struct are indented below it
    type    := scalar | Struct | "[" (scalar | Struct) "]", then "?" if it can be null, then the versions where it can
    option  := "= value" | "tag N" | "ignorable" | "classic"

Versions are "3+", "0-7" or "5"; without them a field is in every version. A struct without indented fields is one that
the same section declares above. "#" begins a comment.

    = value    the default: an integer, true, false or null; without it 0, "", the zero UUID, an empty array, or a
               struct of defaults, also where null is possible
    tag N      the field is a tagged one
    ignorable  a value is dropped, not refused, where a version lacks the field
    classic    a length of 16 or 32 bits in flexible versions, too

Kafka: the JSON files of clients/src/main/resources/common/message, and MessageGenerator.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SCALARS = ("bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid", "string", "bytes", "records")
STRUCT = "struct"
_VERSIONS = re.compile(r"(\d+)(?:(\+)|-(\d+))?\Z")
_TYPE = re.compile(r"(\[)?(\w+)(\])?(\?)?([\d+-]*)\Z")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_LAST = 1 << 15
ZERO_UUID = uuid.UUID(int=0)


class Versions(NamedTuple):
    """Versions from low to high, both included."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


ALWAYS, NEVER = Versions(0, _LAST), Versions(0, -1)


@dataclass
class Field:
    """kind: of SCALARS, or STRUCT with `struct`; of an element if is_array. tag: None for a plain field."""

    name: str
    kind: str
    struct: Struct | None
    is_array: bool
    versions: Versions
    nullable: Versions
    default: Any = None
    tag: int | None = None
    is_ignorable: bool = False
    is_classic: bool = False


@dataclass
class Struct:
    """Fields in the order of the file."""

    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass
class Section:
    """One message: `top` has the name of the section; `structs` are those inside it, by name, in the file's order."""

    top: Struct
    structs: dict[str, Struct] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Struct]:
        yield self.top
        yield from self.structs.values()


def parse(text: str) -> dict[str, Section]:
    """The sections of one file, by name.

    Raises ValueError with the line of the first mistake.
    """
    sections: dict[str, Section] = {}
    section = Section(Struct(""))
    open_structs: list[tuple[int, Struct | None]] = []  # (indent of its line, the struct)
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole.partition("#")[0].rstrip()
        if not line:
            continue
        indent = len(line) - len(line.lstrip())
        try:
            if indent == 0:
                section = sections[line] = Section(Struct(line))
                open_structs = [(0, section.top)]
                continue
            while open_structs[-1][0] >= indent:
                open_structs.pop()
            parent = open_structs[-1][1]
            if parent is None:
                raise ValueError("indented below a field that is not a new struct")
            made, is_new = _field(line.split(), section)
            parent.fields.append(made)
            open_structs.append((indent, made.struct if is_new else None))
        except (ValueError, IndexError, SyntaxError) as mistake:
            raise ValueError(f"line {number}: {line.strip()}: {mistake}") from None
    return sections


def _field(words: list[str], section: Section) -> tuple[Field, bool]:
    """A field, and whether its line declares a struct."""
    name, typed, *rest = words
    match = _TYPE.match(typed)
    if not name.endswith(":") or match is None or bool(match[1]) != bool(match[3]):
        raise ValueError("expected `name: type`")
    kind, struct, is_new = match[2], None, False
    if kind not in SCALARS:
        is_new = kind not in section.structs
        struct = section.structs.setdefault(kind, Struct(kind))
        kind = STRUCT
    nullable = NEVER if not match[4] else _versions(match[5]) if match[5] else ALWAYS
    made = Field(name[:-1], kind, struct, bool(match[1]), ALWAYS, nullable)
    default = None
    while rest:
        word = rest.pop(0)
        if word == "=":
            default = rest.pop(0)
        elif word == "tag":
            made.tag = int(rest.pop(0))
        elif word == "ignorable":
            made.is_ignorable = True
        elif word == "classic":
            made.is_classic = True
        else:
            made.versions = _versions(word)
    made.default = _default(made, default)
    return made, is_new


def _versions(text: str) -> Versions:
    match = _VERSIONS.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a range of versions")
    low = int(match[1])
    return Versions(low, _LAST if match[2] else int(match[3] or low))


def _default(made: Field, text: str | None) -> Any:
    """The default as a Python value; for arrays and structs None or, in place of an empty or default one, ..."""
    if text == "null":
        return None
    if made.is_array or made.struct is not None:
        return ...
    if made.kind in ("string", "bytes", "records"):
        return {"string": "", "bytes": b"", "records": b""}[made.kind]
    if made.kind == "uuid":
        return ZERO_UUID
    if text is None:
        return {"bool": False, "float64": 0.0}.get(made.kind, 0)
    return _WORDS[text] if text in _WORDS else int(text, 0)
