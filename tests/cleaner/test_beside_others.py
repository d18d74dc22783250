"""Cleaning beside threads that append and read: nobody waits for it, nobody sees anything that was not there."""

from __future__ import annotations

import threading
from pathlib import Path

import klog
from tests.cleaner.logs import open_log, values

KEYS = 20
BATCHES = 150


def test_appends_and_reads_go_on(tmp_path: Path) -> None:
    """Every value of a key is larger than the one before, in any read of all; offsets rise; the last values are right."""
    failures: list[BaseException] = []
    done = threading.Event()

    with open_log(tmp_path / "t-0", config={"segment.bytes": 3000, "file.delete.delay.ms": 0}) as log:

        def write() -> None:
            try:
                for number in range(BATCHES):
                    log.append([(b"%d" % (i * number % KEYS), b"%09d" % number) for i in range(10)])
            except BaseException as error:
                failures.append(error)
            finally:
                done.set()

        def read(log: klog.Log) -> None:
            try:
                while not done.is_set():
                    log.refresh()
                    seen: dict[bytes, bytes] = {}
                    before = -1
                    for record in log.read(isolation="log_end"):
                        assert record.offset > before
                        before = record.offset
                        assert record.key is not None
                        assert record.value is not None
                        assert seen.get(record.key, b"") <= record.value
                        seen[record.key] = record.value
                    log.count()
            except BaseException as error:
                failures.append(error)

        other = open_log(tmp_path / "t-0", read_only=True)  # as another process has it: it shares no lock
        threads = [
            threading.Thread(target=write),
            threading.Thread(target=read, args=(log,)),
            threading.Thread(target=read, args=(other,)),
        ]
        for thread in threads:
            thread.start()
        rounds = 0
        while not done.is_set():
            rounds += log.compact().rounds
        for thread in threads:
            thread.join()
        other.close()
        rounds += log.compact(roll=True).rounds
        for failure in failures:
            raise failure
        assert rounds  # how many of them beside the writer is a matter of the machine
        expected: dict[bytes, bytes] = {}
        for number in range(BATCHES):
            expected.update({b"%d" % (i * number % KEYS): b"%09d" % number for i in range(10)})
        assert values(log) == expected
        assert log.count() == KEYS
