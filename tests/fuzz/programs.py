"""The programs of all messages and versions as a C header, and seeds for them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

from klog.protocol import encode
from tests.support import wire


def write_header(folder: Path) -> None:
    """wire_programs.h: `programs`, in the order of wire.versions()."""
    lines, entries = ['#include "wire.h"', ""], []
    for number, (_, layout, version) in enumerate(wire.versions()):
        code = layout.compile(version)
        lines += [f"/* {layout.name} {version} */", f"static const kl_wire_struct_t s{number}[] = {{"]
        lines += [f"    {{{s.first}, {s.plain}, {s.tagged}, {s.absent}, {int(s.flexible)}}}," for s in code.structs]
        lines += ["};", f"static const kl_wire_field_t f{number}[] = {{"]
        lines += [f"    {{{f.kind}, {f.flags}, {f.child}, {f.tag}, {f.element_min}}}," for f in code.fields]
        lines += ["    {0}};"]
        entries.append(f"    {{s{number}, f{number}}},")
    lines += ["static const kl_wire_program_t programs[] = {", *entries, "};", ""]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wire_programs.h").write_text("\n".join(lines))


def seeds() -> Iterator[bytes]:
    """One random message of each sixth program, after the bytes that choose it."""
    chance = random.Random(29)
    for number, (owner, layout, version) in enumerate(wire.versions()):
        if number % 6 == 0:
            yield struct.pack("<H", number) + encode(wire.make(owner, layout, version, chance), version)
