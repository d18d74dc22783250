"""The standard streams of the klog command, without click."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from klog.shown import to_json


def prepare_streams() -> bool:
    """Open the standard streams that are closed (klog cat >&-). Else the next file to be opened would get the
    descriptor, and printed text would go into it. Returns False without stdout, after a line on stderr."""
    closed = sys.stdout is None
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)
    if closed:
        sys.stderr.write("klog: standard output is closed: open it, or redirect it to /dev/null\n")
    return not closed


def print_any_name() -> None:
    """Let a file name that is not UTF-8 be printed, with escapes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """End without an error: the reader has closed the pipe (klog cat | head). Buffered output is discarded."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def json_text(value: Any) -> str:
    """One object, indented for a terminal."""
    return json.dumps(value, ensure_ascii=False, indent=2) if sys.stdout.isatty() else to_json(value)
