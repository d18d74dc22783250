"""Group commit: many durable appenders that share syncs; the peer is one appender with an fdatasync for each record.

group commit    16 threads, and 16 tasks of one event loop, each 40 appends of one record, durability="sync": enough
                that the first group, of one appender, does not count. The peer makes the same number of appends, one
                after the other. The tests' table of kernel calls makes each fdatasync take 5 ms, so that the contest
                measures the sharing and not the disk
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from klog.disk import RealFiles
from tests.support.faulty_io import FaultyIo

SYNC_MS = 5.0
CONFIG = {"segment.bytes": 1 << 30, "retention.ms": -1}


class Appenders:
    """A log with durability="sync", and its appenders. Each appends one record at a time: (appender, number)."""

    def __init__(self, directory: Path, appenders: int, each: int, table: int = 0, size: int = 0) -> None:
        self._directory, self._table = directory, table
        self.appenders, self.each = appenders, each
        self._padding = b"." * size
        self.log: klog.Log | None = None

    def open(self) -> None:
        self.close()
        self.log = klog.Log.open(
            self._directory, config=CONFIG, durability="sync", files=RealFiles(self._table), clean_shutdown=True
        )
        self.log.append([(b"first", b"")])

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def opened(self) -> klog.Log:
        assert self.log is not None
        return self.log

    def record(self, appender: int, number: int) -> tuple[bytes, bytes]:
        return b"%d" % appender, b"%d" % number + self._padding

    def alone(self) -> None:
        """Append all records from one thread, with an fdatasync for each."""
        for number in range(self.each):
            for appender in range(self.appenders):
                self.opened.append([self.record(appender, number)])

    def threads(self) -> None:
        log = self.opened

        def work(appender: int) -> None:
            for number in range(self.each):
                log.append([self.record(appender, number)])

        threads = [threading.Thread(target=work, args=(appender,)) for appender in range(self.appenders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def tasks(self) -> None:
        log = self.opened

        async def work(appender: int) -> None:
            for number in range(self.each):
                await log.append_async([self.record(appender, number)])

        async def main() -> None:
            await asyncio.gather(*map(work, range(self.appenders)))

        asyncio.run(main())

    def check(self) -> None:
        """Check that the log has every record, those of each appender in order."""
        numbers: dict[bytes, int] = {}
        for record in self.opened.read(1):
            appender, number = record.key, int(record.value.rstrip(b"."))
            assert numbers.get(appender, 0) == number, f"{appender!r}: {number} after {numbers.get(appender, 0)}"
            numbers[appender] = number + 1
        assert len(numbers) == self.appenders and set(numbers.values()) == {self.each}


def _group_commit(tiny: bool, folder: Path) -> Contest:
    io = FaultyIo()
    io.heal()
    race = Appenders(folder / "group-0", 2 if tiny else 16, 2 if tiny else 40, io.table)

    def before() -> None:
        io.heal()
        race.open()
        io.rule("fdatasync", delay_ms=SYNC_MS)

    def check() -> None:
        for run in (race.threads, race.tasks, race.alone):
            before()
            run()
            race.check()

    def close() -> None:
        io.heal()
        race.close()

    count = race.appenders * race.each
    return Contest(
        "group commit",
        count,
        count,
        (
            Contestant("klog Log.append, 16 threads", race.threads, before=before, goal=0.8 * race.appenders),
            Contestant("klog Log.append_async, 16 tasks", race.tasks, before=before, goal=0.8 * race.appenders),
            Contestant("klog Log.append, one thread", race.alone, before=before),
        ),
        check,
        close,
    )


FACTORIES: dict[str, Factory] = {"group commit": _group_commit}
