"""Reads facts about the machine and a process: file systems, devices, limits, memory. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.disk.device import SYS, DiskSpace, Mount, device_number, disk_space, is_rotational, mount_of, scheduler_of
from klog.disk.proc import PROC, DirtyLimits, SystemMemory, read_dirty_limits, read_meminfo, read_memory, read_setting
from klog.health.process import ProcessUse, process_use
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class Directory:
    """The disk of one log.dir. problem: why its space is not known."""

    path: str
    space: DiskSpace | None
    problem: str | None
    mount: Mount | None
    scheduler: str | None
    rotational: bool | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the machine. process: of the process that writes; None if there is none or it is not known."""

    directories: tuple[Directory, ...]
    process: ProcessUse | None
    memory: SystemMemory
    swap_bytes: int | None
    limits: DirtyLimits
    swappiness: int | None


def read_machine(paths: Iterable[str], pid: int | None, *, proc_root: str = PROC, sys_root: str = SYS) -> Machine:
    """Return the facts now; what cannot be read is None. pid: of the process that writes. proc_root, sys_root: /proc
    and /sys, or a test's."""
    meminfo = read_meminfo(proc_root)
    return Machine(
        tuple(_directory(path, proc_root, sys_root) for path in paths),
        None if pid is None else process_use(pid, proc_root),
        read_memory(proc_root),
        meminfo.get("SwapTotal"),
        read_dirty_limits(proc_root),
        read_setting("swappiness", proc_root),
    )


def _directory(path: str, proc_root: str, sys_root: str) -> Directory:
    space, problem = None, None
    try:
        space = disk_space(path)
    except OSError as error:
        problem = os.strerror(error.errno or 0)
    number = device_number(path)
    mount = mount_of(path, proc_root)
    return Directory(path, space, problem, mount, scheduler_of(number, sys_root), is_rotational(number, sys_root))
