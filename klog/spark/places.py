"""Paths as Spark users write them: local ones, with or without file:, and those of other file systems."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/")


def scheme_of(path: str) -> str:
    """Return the scheme of a path, such as s3a, in lower case; "" for a path without one."""
    found = _SCHEME.match(path)
    return found[1].lower() if found else ""


def local(path: str) -> str | None:
    """Return a local path without its scheme, None for one of another file system."""
    scheme = scheme_of(path)
    if not scheme:
        return path
    return "/" + path[len(scheme) + 1 :].lstrip("/") if scheme == "file" else None
