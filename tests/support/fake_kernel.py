"""A directory with the files of /proc and /sys of a healthy machine. A test changes some of them."""

from __future__ import annotations

import os
from pathlib import Path


class FakeKernel:
    def __init__(self, root: Path) -> None:
        self.proc, self.sys, self.log_dir = root / "proc", root / "sys", root / "log.dir"
        self.pid = 42
        self.log_dir.mkdir()
        self.mount("ext4", "rw,relatime")
        self.device("[none] mq-deadline")
        self.memory()
        self.vm()
        self.process()

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def mount(self, kind: str, options: str, point: str | None = None) -> None:
        point = str(self.log_dir) if point is None else point
        lines = [
            "1 0 8:1 / / rw - rootfs none rw",
            f"2 1 8:1 / {point} {options} shared:1 - {kind} /dev/sda1 {options}",
        ]
        self._write(self.proc / "self" / "mountinfo", "\n".join(lines) + "\n")

    def device(self, scheduler: str, busy_ms: int = 70, queue_ms: int = 80, written_sectors: int = 60) -> None:
        number = os.stat(self.log_dir).st_dev
        name = f"{os.major(number)}:{os.minor(number)}"
        self._write(self.sys / "dev" / "block" / name / "queue" / "scheduler", scheduler + "\n")
        self._write(self.sys / "dev" / "block" / name / "queue" / "rotational", "0\n")
        words = f"   {os.major(number)} {os.minor(number)} sda1 10 0 20 30 40 0 {written_sectors} 60 1 {busy_ms} {queue_ms} 0 0 0 0\n"
        self._write(self.proc / "diskstats", "   1 99 ram0 0 0 0 0 0 0 0 0 0 0 0\n" + words)

    def memory(self, available_kib: int = 500_000, dirty_kib: int = 4) -> None:
        text = f"MemTotal: 1000000 kB\nMemAvailable: {available_kib} kB\nDirty: {dirty_kib} kB\nSwapTotal: 100 kB\n"
        self._write(self.proc / "meminfo", text)
        self._write(self.proc / "vmstat", "nr_dirty_threshold 1000\nnr_dirty_background_threshold 500\n")

    def vm(self, swappiness: int = 1, dirty_background_ratio: int = 10) -> None:
        for name, value in {
            "swappiness": swappiness,
            "dirty_background_ratio": dirty_background_ratio,
            "dirty_background_bytes": 0,
            "max_map_count": 100,
        }.items():
            self._write(self.proc / "sys" / "vm" / name, f"{value}\n")

    def process(self, open_files: int = 3, limit: int = 1000, maps: int = 5) -> None:
        where = self.proc / str(self.pid)
        self._write(where / "limits", f"Limit  Soft  Hard  Units\nMax open files  {limit}  {limit}  files\n")
        self._write(where / "maps", "0-1 r--p\n" * maps)
        for number in range(open_files):
            self._write(where / "fd" / str(number), "")
