"""A verb of klog on a terminal, where it may ask."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess

from tests.cli.test_process import KLOG, _environment


def answered(answer: str, *args: object) -> tuple[int, str, str]:
    """Run a verb whose stdin and stderr are a terminal, with an answer typed ahead, and then the end of the input. Returns
    its exit code, what it wrote on stdout, and what the terminal showed."""
    terminal, other = pty.openpty()
    try:
        os.write(terminal, answer.encode() + b"\x04")
        with subprocess.Popen(
            [*KLOG, *map(str, args)], stdin=other, stdout=subprocess.PIPE, stderr=other, env=_environment()
        ) as process:
            os.close(other)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: its other end is closed
                while part := os.read(terminal, 1 << 16):
                    shown += part
            assert process.stdout is not None
            printed = process.stdout.read()
        return process.returncode, printed.decode(), shown.decode()
    finally:
        os.close(terminal)
