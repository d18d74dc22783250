"""The standard streams of the klog command, without click."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

from klog.shown import to_json

STDOUT = "standard output"  # in errors


def prepare_streams() -> bool:
    """Open the standard streams that are closed (klog cat >&-). Else the next file to be opened would get the
    descriptor, and printed text would go into it. Returns False without stdout, after a line on stderr."""
    closed = sys.stdout is None
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)
    if closed:
        sys.stderr.write(f"klog: {STDOUT} is closed: open it, or redirect it to /dev/null\n")
    else:
        _name_stdout()
    return not closed


class _Stdout(io.FileIO):
    """The descriptor of stdout. An error of a write names it, as that of a file names the file."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STDOUT
            raise


def _name_stdout() -> None:
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper):
        raw = _Stdout(old.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering or old.write_through,  # python -u
            write_through=old.write_through,
        )


def print_any_name() -> None:
    """Let a file name that is not UTF-8 be printed, with escapes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def print_json_as_utf_8() -> None:
    """JSON is UTF-8, whatever the encoding of other text on stdout."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="backslashreplace")


def discard_stdout() -> None:
    """End without an error: the reader has closed the pipe (klog cat | head). Buffered output is discarded."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def json_text(value: Any) -> str:
    """One object, indented for a terminal."""
    return json.dumps(value, ensure_ascii=False, indent=2) if sys.stdout.isatty() else to_json(value)
