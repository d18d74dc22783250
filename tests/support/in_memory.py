"""A place in memory for tests that sync thousands of times: a killed process leaves the same files there, and power cuts
are simulated."""

from __future__ import annotations

import os
import shutil

_PATH = "/dev/shm"


def memory(bytes_min: int = 4 << 30) -> str | None:
    """A file system in memory with this much free space, as the `dir` of tempfile. None: there is none."""
    return _PATH if os.path.isdir(_PATH) and shutil.disk_usage(_PATH).free >= bytes_min else None
