"""Child processes that end with a `with` block: each has its own process group, which is killed at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import klog


@contextlib.contextmanager
def python_module(module: str, *arguments: str, stderr: IO[bytes] | int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m module arguments` with its output in a pipe. The end of the block kills the group, also on
    Ctrl-C."""
    environment = dict(os.environ)
    # The child must find the same klog, however this one was found (a checkout on sys.path, for example).
    home = str(Path(klog.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH", ""))))
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        start_new_session=True,  # a Ctrl-C in the terminal reaches only the demo, which then kills the child
    )
    try:
        yield process
    finally:
        kill_group(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the process and all it started (Spark's JVM). The group id is not reused before wait()."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
