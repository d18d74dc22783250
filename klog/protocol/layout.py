"""Layouts: a message's schema with its versions, and the program of each version for the walker in csrc/wire.c.

A schema is read, and a program compiled, when it is first used: a broker pays only for the messages and versions that
its clients speak.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from klog.protocol.api_keys import ApiKey
from klog.protocol.schema import ALWAYS, NEVER, SCALARS, STRUCT, Field, Section, Struct, Versions, parse

# The files with messages that are neither request nor response; each has a section for every message.
_DATA_FILES = (
    "headers",
    "consumer_protocol",
    "consumer_offsets",
    "transaction_state",
    "share_group_state",
    "cluster_metadata",
    "remote_log_metadata",
    "control_records",
)
_APIS = {api.message: api for api in ApiKey}
_ARRAY, _NULLABLE, _COMPACT, _IGNORABLE, _TAGGED = 1, 2, 4, 8, 16
_FIXED = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16}
_KINDS = {kind: number for number, kind in enumerate((*SCALARS, STRUCT))}
DEPTH_MAX = 8


class FieldCode:
    """kl_wire_field_t, with the field's name and default."""

    __slots__ = ("child", "default", "element_min", "flags", "kind", "name", "tag")

    def __init__(self, kind: int, flags: int, child: int, tag: int, element_min: int, name: str, default: Any) -> None:
        self.kind, self.flags, self.child, self.tag, self.element_min = kind, flags, child, tag, element_min
        self.name, self.default = name, default


class StructCode:
    """kl_wire_struct_t, with the struct's name."""

    __slots__ = ("absent", "first", "flexible", "name", "plain", "tagged")

    def __init__(self, first: int, plain: int, tagged: int, absent: int, flexible: int, name: str) -> None:
        self.first, self.plain, self.tagged, self.absent = first, plain, tagged, absent
        self.flexible, self.name = flexible, name


class Code:
    """The program of one version."""

    __slots__ = ("fields", "structs")

    def __init__(self) -> None:
        self.structs: list[StructCode] = []
        self.fields: list[FieldCode] = []


class Layout:
    """name: Produce.Request. flexible_from: the first flexible version, or None."""

    __slots__ = ("flexible_from", "name", "section", "versions")

    def __init__(self, name: str, section: Section, versions: Versions, flexible_from: int | None) -> None:
        self.name, self.section, self.versions, self.flexible_from = name, section, versions, flexible_from

    def compile(self, version: int) -> Code:
        """The program of one version, which must be one of `versions`."""
        return _Compiler(version, self.flexible_from is not None and version >= self.flexible_from).code(self.section)


@cache
def load(message: str) -> dict[str, Layout]:
    """{section: its layout} of an API ("request" and "response") or of another message ("data").

    Raises KeyError for a name that klog does not know.
    """
    api = _APIS.get(message)
    if api is None:
        section = _data_section(message)
        assert section.versions is not None, f"{message}: its section has no versions"
        return {"data": Layout(message, section, section.versions, section.flexible)}
    file = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in message)[1:]
    sections, versions = parse(_read(file)), Versions(api.low, api.high)
    return {
        name: Layout(f"{message}.{name.title()}", sections[name], versions, api.flexible)
        for name in ("request", "response")
    }


def data_messages() -> list[str]:
    """The names of the messages that are neither request nor response."""
    return [name for file in _DATA_FILES for name in parse(_read(file))]


def _data_section(message: str) -> Section:
    for file in _DATA_FILES:
        text = _data_text(file)
        start = text.find(f"\n{message} ")
        if start >= 0:
            end = text.find("\n\n", start)
            return parse(text[start : end if end >= 0 else len(text)])[message]
    raise KeyError(message)


def _read(file: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "schemas", f"{file}.txt")
    data: bytes = __spec__.loader.get_data(path)  # type: ignore[union-attr]  # also inside a zip file
    return data.decode()


_data_text = cache(_read)


class _Compiler:
    """Compiles one section for one version."""

    def __init__(self, version: int, is_flexible: bool) -> None:
        self.version, self.is_flexible = version, is_flexible

    def code(self, section: Section) -> Code:
        structs = list(section)
        numbers = {struct.name: number for number, struct in enumerate(structs)}
        self._check_depth(section.top, 1)
        code = Code()
        for struct in structs:
            plain, tagged, absent = self._sorted(struct)
            counts = len(plain), len(tagged), len(absent)
            code.structs.append(StructCode(len(code.fields), *counts, self.is_flexible, struct.name))
            code.fields.extend([self._field(field, numbers) for field in (*plain, *tagged, *absent)])
        return code

    def _sorted(self, struct: Struct) -> tuple[list[Field], list[Field], list[Field]]:
        """The plain fields that the version has, the tagged ones by tag, and those that it lacks."""
        plain: list[Field] = []
        tagged: list[Field] = []
        absent: list[Field] = []
        for field in struct.fields:
            is_here = field.versions is ALWAYS or self.version in field.versions
            (absent if not is_here else plain if field.tag is None else tagged).append(field)
        tagged.sort(key=lambda field: field.tag or 0)
        return plain, tagged, absent

    def _field(self, field: Field, numbers: dict[str, int]) -> FieldCode:
        flags = _COMPACT if self.is_flexible and not field.is_classic else 0
        if field.is_array:
            flags |= _ARRAY
        if field.is_ignorable:
            flags |= _IGNORABLE
        if field.tag is not None:
            flags |= _TAGGED
        if field.nullable is not NEVER and self.version in field.nullable:
            flags |= _NULLABLE
        child = numbers[field.struct.name] if field.struct is not None else 0
        element_min = max(1, self._smallest_element(field)) if field.is_array else 1
        assert field.tag is None or field.kind != "records", "records in a tagged field: csrc/wire.c moves its bytes"
        return FieldCode(_KINDS[field.kind], flags, child, field.tag or 0, element_min, field.name, field.default)

    def _smallest(self, field: Field) -> int:
        """Bytes that a value takes at least."""
        if field.is_array:
            return 1 if self.is_flexible and not field.is_classic else 4
        if field.struct is not None and self.version in field.nullable:
            return 1
        return self._smallest_element(field)

    def _smallest_element(self, field: Field) -> int:
        if field.struct is not None:
            plain, _, _ = self._sorted(field.struct)
            return sum(map(self._smallest, plain)) + self.is_flexible
        if field.kind in _FIXED:
            return _FIXED[field.kind]
        return 1 if self.is_flexible and not field.is_classic else 2 if field.kind == "string" else 4

    def _check_depth(self, struct: Struct, depth: int) -> None:
        assert depth <= DEPTH_MAX, f"{struct.name} is nested deeper than KL_WIRE_DEPTH"
        for field in struct.fields:
            if field.struct is not None:
                self._check_depth(field.struct, depth + 1)
