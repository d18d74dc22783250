"""Measures records as a program appends, reads and compacts them: the whole of klog on this disk, not the disk alone.

    append 100 records   a call, by durability: until append() has returned
    read                 from the page cache: as Records, as pairs, or batches without their records
    compact              a log with ten records of each key, by compression

Each way ends with a check of its answer: every record that was appended is read back, and compared.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Literal

from klog.clock import Clock
from klog.errors import CorruptData
from klog.log import Log
from klog.manager import open_directory
from klog.progress import Progress
from klog.trial.own_directory import own_directory
from klog.trial.report import Report
from klog.trial.rounds import ROUNDS_MAX, Figures, Rounds, Ways, rate, waits

SIZE_MIN = 4 << 20
DURABILITIES: tuple[Literal["os", "interval", "sync"], ...] = ("os", "interval", "sync")
CODECS = ("uncompressed", "lz4")
_CALL = 100  # records
_KEY, _VALUE = 16, 100  # bytes
_PER_KEY = 10
_CONTESTS = 3
_NOISE = random.Random(7).randbytes(1 << 16)

Pair = tuple[bytes | None, bytes | None]


def try_log(
    directory: str | os.PathLike[str],
    *,
    size: int = 128 << 20,
    seconds: float = 10.0,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measure appends, reads and compactions of records in a new directory inside `directory`, removed afterwards.

    About `size` bytes are written, at most half of them at a time; `seconds` limits the time, but each contest runs for
    at least one round. progress: called with Events, in contests. Raises ValueError (size below 4 MiB), OSError: too
    little free space, or a disk error; CorruptData if other records are read than were appended.
    """
    with own_directory(directory, size, SIZE_MIN) as (parent, scratch):
        rounds = Rounds("bench log", _CONTESTS, size, seconds, clock, progress)
        return _Trial(parent, scratch, size, seconds, rounds).run()


def pairs(count: int, keys: int) -> list[Pair]:
    """Return keys and values for `count` records, in which `keys` keys alternate. No two values are the same."""
    return [
        (b"%0*d" % (_KEY, number % keys), b"%0*d" % (_KEY, number) + _noise(number, _VALUE - _KEY))
        for number in range(count)
    ]


def check(log: Log, expected: Sequence[Pair]) -> None:
    """Raise CorruptData if the log does not hold exactly these records."""
    for found, wanted in zip_longest(log.read().pairs(), expected):
        if found != wanted:
            raise _wrong(log)


def _wrong(log: Log) -> CorruptData:
    return CorruptData(
        "other records are read than were appended: check the memory and the disk of this machine, in the kernel's log",
        path=log.path,
        kind="crc",
    )


def _noise(number: int, size: int) -> bytes:
    start = number * 31 % (len(_NOISE) - size)
    return _NOISE[start : start + size]


class _Trial:
    def __init__(self, parent: str, scratch: str, size: int, seconds: float, rounds: Rounds) -> None:
        self._parent, self._scratch, self._rounds = parent, scratch, rounds
        self._clock = rounds.clock
        self._records = size // (_KEY + _VALUE)  # of the whole trial
        self._append_seconds = seconds / _CONTESTS / len(DURABILITIES) / ROUNDS_MAX
        self._number = 0

    def run(self) -> Report:
        start = self._clock.monotonic()
        contest = self._rounds.contest
        results = contest(f"append {_CALL} records", self._appends(), share=1 / 2)
        with self._log() as log:
            records = pairs(self._records // 8, 1000)
            self._fill(log, records)
            check(log, records)
            results += contest("read", self._reads(log, len(records)), share=1)
        results += contest("compact", self._compactions(), share=1 / 4)
        return Report(self._parent, results, self._rounds.written, self._clock.monotonic() - start)

    @contextmanager
    def _log(
        self, config: dict[str, str] | None = None, durability: Literal["os", "interval", "sync"] = "os"
    ) -> Iterator[Log]:
        """A new log, which is removed at the end."""
        self._number += 1
        path = os.path.join(self._scratch, str(self._number))
        with open_directory(path, create=True, durability=durability) as logs:
            logs.create_topic("t", config={"retention.ms": "-1", **(config or {})})
            log = logs.log("t")
            yield log
        shutil.rmtree(path)

    def _fill(self, log: Log, records: Sequence[Pair]) -> None:
        log.append(records)
        self._rounds.wrote(log.size)

    def _appends(self) -> Ways:
        records = pairs(self._records // 2 // len(DURABILITIES) // ROUNDS_MAX, 1000)
        calls = [records[first : first + _CALL] for first in range(0, len(records), _CALL)]

        def append(durability: Literal["os", "interval", "sync"]) -> Figures:
            taken: list[float] = []
            with self._log(durability=durability) as log:
                log.append(calls[0])  # it creates the files
                start = before = self._clock.monotonic()
                for call in calls[1:]:
                    log.append(call)
                    after = self._clock.monotonic()
                    taken.append(after - before)
                    before = after
                    if after - start > self._append_seconds:
                        break
                self._rounds.wrote(log.size)
                check(log, records[: (1 + len(taken)) * _CALL])
            return {"records/s": rate(sum(map(len, calls[1 : 1 + len(taken)])), before - start), **waits(taken)}

        return {each: lambda each=each: append(each) for each in DURABILITIES}  # type: ignore[misc]

    def _reads(self, log: Log, records: int) -> Ways:
        def read(count: Callable[[], int]) -> Figures:
            start = self._clock.monotonic()
            found = count()
            taken = self._clock.monotonic() - start
            if found != records:
                raise _wrong(log)
            return {"records/s": rate(records, taken), "MB/s": rate(log.size / 1e6, taken)}

        return {
            "records": lambda: read(lambda: sum(len(each.value or b"") == _VALUE for each in log.read())),
            "pairs": lambda: read(lambda: sum(len(value or b"") == _VALUE for _, value in log.read().pairs())),
            "batches": lambda: read(lambda: sum(each.count for each in log.read().batches())),
        }

    def _compactions(self) -> Ways:
        keys = self._records // 4 // len(CODECS) // ROUNDS_MAX // _PER_KEY
        records = pairs(keys * _PER_KEY, keys)

        def compact(codec: str) -> Figures:
            config = {"cleanup.policy": "compact", "compression.type": codec}
            with self._log(config) as log:
                self._fill(log, records)
                start = self._clock.monotonic()
                before = log.compact(roll=True).bytes_before
                taken = self._clock.monotonic() - start
                self._rounds.wrote(log.size)
                check(log, records[-keys:])
            return {"records/s": rate(len(records), taken), "MB/s": rate(before / 1e6, taken)}

        return {codec: lambda codec=codec: compact(codec) for codec in CODECS}  # type: ignore[misc]
