"""klog's own JSON files: an object with a version; an older klog raises NewerFormat if it is newer."""

from __future__ import annotations

import json
from typing import Any

from klog.errors import NewerFormat

# What reading an invalid document may raise, besides NewerFormat.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def parse(data: bytes, path: str, version: int) -> Any:
    """Return the document. Raises NewerFormat if its version is later than this klog reads, and one of MALFORMED for an
    invalid document; the caller that takes it apart must expect those, too."""
    document = json.loads(data)
    found = document["version"]
    if type(found) is not int or found < 1:
        raise ValueError(f"version {found!r}")
    if found > version:
        raise NewerFormat(f"{path} has version {found}, this klog reads {version}: upgrade klog")
    return document
