"""klog's own JSON files: an object with a version, which an older klog refuses by name if it is newer."""

from __future__ import annotations

import json
from typing import Any

from klog.errors import NewerFormat

# What reading a document that is no such file may end in, besides NewerFormat.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def parse(data: bytes, path: str, version: int) -> Any:
    """The document. NewerFormat: it has a later version than this klog reads. Raises one of MALFORMED for what is no
    such document, and whoever goes on to take it apart may meet others of them."""
    document = json.loads(data)
    found = document["version"]
    if isinstance(found, int) and found > version:
        raise NewerFormat(f"{path} has version {found}, this klog reads {version}: upgrade klog")
    return document
