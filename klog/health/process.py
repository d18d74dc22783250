"""How much a process uses of its limits: open files, and mapped ranges of memory. From /proc, for any process of this
user.

Kafka and klog keep the files of active segments open and map their indexes: thousands of partitions need thousands of
descriptors (RLIMIT_NOFILE) and maps (vm.max_map_count).
"""

from __future__ import annotations

import os

from klog.disk.proc import PROC, text_of
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Numbers of a process; None where the kernel does not show them, for example of another user's process."""

    pid: int
    open_files: int | None
    open_files_max: int | None
    maps: int | None
    maps_max: int | None


def process_use(pid: int, proc_root: str = PROC) -> ProcessUse:
    """Return the numbers of a process."""
    where = os.path.join(proc_root, str(pid))
    try:
        open_files: int | None = len(os.listdir(os.path.join(where, "fd")))
    except OSError:
        open_files = None
    limit = None
    for line in text_of(os.path.join(where, "limits")).splitlines():
        if line.startswith("Max open files"):
            words = line.split()
            limit = int(words[3]) if words[3].isdigit() else None  # or unlimited
    maps = text_of(os.path.join(where, "maps"), 32 << 20)
    most = text_of(os.path.join(proc_root, "sys", "vm", "max_map_count")).strip()
    return ProcessUse(pid, open_files, limit, maps.count("\n") if maps else None, int(most) if most.isdigit() else None)
