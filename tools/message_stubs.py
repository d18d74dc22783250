"""Writes klog/protocol/messages.pyi, the types of all message classes, from the schemas: python
tools/message_stubs.py"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from klog.protocol.classes import names
from klog.protocol.layout import load
from klog.protocol.schema import NEVER, Field, Section, Struct

OUTPUT = Path(__file__).resolve().parent.parent / "klog" / "protocol" / "messages.pyi"
_TYPES = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "int64"), "int"),
    "bool": "bool",
    "float64": "float",
    "uuid": "uuid.UUID",
    "string": "str",
    "bytes": "bytes",
    "records": "Any",
}
_HEAD = """\
# Made by tools/message_stubs.py from the schemas. Each field has its default when it is not given.

import uuid
from typing import Any

from klog.protocol._message import Message

"""


def text() -> str:
    """Return the text of the stub, formatted."""
    lines = [_HEAD]
    for name in names():
        sections = load(name)
        if "data" in sections:
            lines += _message(name, name, sections["data"].section, "")
        else:
            lines.append(f"class {name}:")
            for section, layout in sections.items():
                lines += _message(section.title(), f"{name}.{section.title()}", layout.section, "    ")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", OUTPUT.name, "-"]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout


def _message(name: str, path: str, section: Section, indent: str) -> Iterator[str]:
    yield f"{indent}class {name}(Message):"
    for struct in section.structs.values():
        yield f"{indent}    class {struct.name}(Message):"
        yield from _fields(struct, path, f"{indent}        ")
    yield from _fields(section.top, path, f"{indent}    ")


def _fields(struct: Struct, path: str, indent: str) -> Iterator[str]:
    for field in struct.fields:
        yield f"{indent}{field.name}: {_annotation(field, path)} = ..."
    if not struct.fields:
        yield f"{indent}..."


def _annotation(field: Field, path: str) -> str:
    one = f"{path}.{field.struct.name}" if field.struct is not None else _TYPES[field.kind]
    if field.is_array:
        one = f"list[{one}]"
    nullable = field.nullable != NEVER and one != "Any"
    return f"{one} | None" if nullable else one


def main() -> None:
    OUTPUT.write_text(text())


if __name__ == "__main__":
    main()
