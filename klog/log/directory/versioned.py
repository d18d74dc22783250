"""klog's own JSON files: an object with a version and a checksum.

    {"version": 1, ..., "crc32c": N}

N is the CRC-32C of the object without it, as json.dumps writes it without spaces. A file without one, by an earlier
klog, is read unchecked. A file with a newer version raises NewerFormat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from klog.codec import crc32c
from klog.errors import NewerFormat

# What reading an invalid document may raise, besides NewerFormat.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


CHECKSUM = "crc32c"


def encode(document: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return the bytes of a file. document: has a version, and no checksum yet."""
    return (json.dumps({**document, CHECKSUM: _checksum(document)}, indent=indent) + "\n").encode()


def sealed(members: Iterable[str]) -> bytes:
    """Return the same for a document whose members are encoded already, without spaces; line feeds are allowed."""
    text = "{" + ",\n".join(members)
    checksum = crc32c((text + "}").replace("\n", "").encode())
    return f'{text},\n"{CHECKSUM}":{checksum}}}\n'.encode()


def compact(value: Any) -> str:
    """Return a value as JSON without spaces, as the checksum covers it."""
    return json.dumps(value, separators=(",", ":"))


def parse(data: bytes, path: str, version: int) -> Any:
    """Return the document without its checksum. Raises NewerFormat if its version is later than this klog reads, and
    one of MALFORMED for an invalid document; the caller that takes it apart must expect those, too."""
    document = json.loads(data)
    found = document["version"]
    if type(found) is not int or found < 1:
        raise ValueError(f"version {found!r}")
    if found > version:  # before the checksum, which a later version may compute otherwise
        raise NewerFormat(f"{path} has version {found}, this klog reads {version}: upgrade klog")
    stored = document.pop(CHECKSUM, None)
    if stored is not None and stored != _checksum(document):
        raise ValueError(f'wrong checksum: damaged, or edited; if it was edited, remove "{CHECKSUM}" to accept it')
    return document


def _checksum(document: Mapping[str, Any]) -> int:
    return crc32c(compact(document).encode())
