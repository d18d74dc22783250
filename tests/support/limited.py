"""A log in use while the system imposes a real limit and lifts it again.

Run as `python -m tests.support.limited LIMIT DIRECTORY`; DIRECTORY exists, on a file system where the limit applies. It
prints JSON: the errnos that occurred, by call, and whether the log went offline.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import klog
from klog.errors import KlogError
from tests.support.logs import values

CONFIG = {
    "segment.bytes": 1 << 15,
    "segment.index.bytes": 4096,
    "cleanup.policy": "compact,delete",
    "retention.bytes": 1 << 28,
    "file.delete.delay.ms": 0,
}
Limit = tuple[Callable[[], object], Callable[[], object]]


def rlimit(kind: int, size: int) -> Limit:
    soft, hard = resource.getrlimit(kind)
    return lambda: resource.setrlimit(kind, (size, hard)), lambda: resource.setrlimit(kind, (soft, hard))


def few_descriptors() -> Limit:
    free = max(map(int, os.listdir("/proc/self/fd")))
    while (fd := os.open("/dev/null", os.O_RDONLY)) < free:  # all lower descriptors are in use
        pass
    os.close(fd)
    return rlimit(resource.RLIMIT_NOFILE, fd)


def mounted(where: Path, less: str, more: str) -> Limit:
    def remount(option: str) -> Callable[[], object]:
        return lambda: subprocess.run(["mount", "-o", f"remount,{option}", str(where)], check=True)

    return remount(less), remount(more)


def immutable(where: Path) -> Limit:
    def change(flag: str) -> Callable[[], object]:
        return lambda: subprocess.run(["chattr", flag, str(where / "t-0")], check=True)

    return change("+i"), change("-i")


def limit(name: str, where: Path) -> Limit:
    if name == "file size":
        return rlimit(resource.RLIMIT_FSIZE, 20_000)
    if name == "descriptors":
        return few_descriptors()
    if name == "space":
        return mounted(where, "size=512k", "size=64m")
    if name == "inodes":
        return mounted(where, "nr_inodes=30", "nr_inodes=10000")
    return immutable(where)


def life(name: str, where: Path) -> dict[str, Any]:
    met: dict[str, str] = {}
    acked: dict[int, bytes] = {}

    def call(what: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except (OSError, KlogError) as error:
            number = getattr(error, "errno", None)
            met[what] = errno.errorcode[number] if number else type(error).__name__
            return None

    def append(log: klog.Log, number: int) -> bool:
        value = b"%d " % number + os.urandom(800)
        info = call("append", lambda: log.append([(b"%d" % number, value)]))
        if info is not None:
            acked[info.first_offset] = value
        return info is not None

    def check(log: klog.Log) -> None:
        assert {record.offset: record.value for record in log.read()} == acked
        assert not [one for one in log.verify().problems if one.kind != "leftover"]

    log = klog.Log.open(where / "t-0", config=CONFIG)
    for number in range(10):
        assert append(log, number)
    tighten, loosen = limit(name, where)
    tighten()
    for number in range(10, 1000):
        if not append(log, number):
            break
    for what, action in (
        ("roll", log.roll),
        ("flush", log.flush),
        ("retention", log.apply_retention),
        ("compact", log.compact),
        ("read", lambda: values(log)),
    ):
        call(what, action)
    offline = log.offline
    if offline is not None:
        call("close", log.close)
        call("open", lambda: klog.Log.open(where / "t-0", config=CONFIG).close())
    loosen()
    if offline is not None:
        log = klog.Log.open(where / "t-0", config=CONFIG)
    check(log)
    limited = dict(met)
    for number in range(1000, 1060):
        assert append(log, number), met
    log.roll()
    log.compact()
    log.flush()
    log.close()
    with klog.Log.open(where / "t-0", config=CONFIG) as log:
        check(log)
        assert len(acked) >= 70
    return {"met": limited, "offline": offline}


if __name__ == "__main__":
    print(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
