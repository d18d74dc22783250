"""Calls of a log that a signal handler interrupts: at every disk operation, or at any moment.

Run as `python -m tests.support.handled SCENARIO HANDLER DURABILITY STEP`, or `anywhere SEED DURABILITY ROUNDS`. After
some seconds without progress it prints the stacks and ends. It prints JSON: the outcomes of the handler's calls.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import klog
from klog.errors import LogClosed, ReentrantCall, StorageOffline
from tests.support.failing_files import FailingFiles
from tests.support.logs import values
from tests.support.rounds import checkpoint_round, flush_round

HANG_SECONDS = 600
Acked = tuple[int, bytes]


class Interrupted(FailingFiles):
    """Raises a signal at the nth operation."""

    def check(self, what: str, path: str) -> None:
        if self.armed:
            self.calls += 1
            if self.calls == self.nth:
                signal.raise_signal(signal.SIGUSR1)


def records(*names: str) -> list[tuple[bytes, bytes]]:
    return [(b"k", name.encode()) for name in names]


def append_and_roll(logs: klog.LogManager, log: klog.Log) -> None:
    log.append(records("1"))
    log.append(records(*["x" * 3000] * 8))
    log.append(records("2"))


def flush(logs: klog.LogManager, log: klog.Log) -> None:
    log.append(records("1"))
    log.flush()


def compact(logs: klog.LogManager, log: klog.Log) -> None:
    log.append(records("1", "2"))
    log.compact(roll=True)


def create(logs: klog.LogManager, log: klog.Log) -> None:
    logs.create_topic("other", partitions=2)
    logs.log("other", 1).append(records("1"))


def checkpoints(logs: klog.LogManager, log: klog.Log) -> None:
    log.append(records("1"))
    flush_round(logs, log)
    log.update_high_watermark(log.log_end_offset)
    checkpoint_round(logs)


def truncate(logs: klog.LogManager, log: klog.Log) -> None:
    log.append(records("1"))
    log.append(records("2"))
    log.truncate_to(log.log_end_offset - 1)


def close(logs: klog.LogManager, log: klog.Log) -> None:
    log.append(records("1"))
    logs.close()


SCENARIOS: dict[str, Callable[[klog.LogManager, klog.Log], None]] = {
    each.__name__: each for each in (append_and_roll, flush, compact, create, checkpoints, truncate, close)
}
HANDLERS: dict[str, Callable[[klog.LogManager, klog.Log], Any]] = {
    "close": lambda logs, log: logs.close(),
    "close one": lambda logs, log: log.close(),
    "flush": lambda logs, log: log.flush(),
    "append": lambda logs, log: log.append(records("h")),
    "roll": lambda logs, log: log.roll(),
    "read": lambda logs, log: (values(log), log.fetch_offset_snapshot(), log.last_stable_offset, log.fetch(0)),
}
CONFIG = {"segment.bytes": 16384, "cleanup.policy": "compact", "file.delete.delay.ms": 0}


def at(nth: int, scenario: str, handler: str, durability: Any, where: Path) -> tuple[bool, Counter[str]]:
    """Run once with the signal at the nth operation. Returns whether the run had an nth operation, and the result of
    the handler's call."""
    files, became = Interrupted(nth, armed=False), Counter[str]()
    logs = klog.open(
        where, create=True, durability=durability, files=files, config={"num.recovery.threads.per.data.dir": 2}
    )
    logs.create_topic("t", config=CONFIG)
    log = logs.log("t")
    log.append(records("0"))

    def handle(*_: object) -> None:
        files.armed = False
        try:
            HANDLERS[handler](logs, log)
        except (ReentrantCall, LogClosed):
            became["refused"] += 1
        else:
            became["done"] += 1

    signal.signal(signal.SIGUSR1, handle)
    files.armed = True
    try:
        SCENARIOS[scenario](logs, log)
    except LogClosed:
        assert handler.startswith("close") and became["done"], (nth, scenario, handler)
    came, files.armed = files.calls >= nth, False
    logs.close()
    with klog.open(where, recovery="strict") as again:
        assert again.clean_shutdown, (nth, scenario, handler, became)
        for each in again.logs():
            problems = each.verify().problems
            assert not problems, (nth, scenario, handler, problems)
        found = values(again.log("t"))
        assert found, (nth, scenario, handler)
        if scenario != "compact" and became["refused"]:
            whole = {"append_and_roll": 11, "flush": 2, "create": 1, "checkpoints": 2, "truncate": 2, "close": 2}
            assert len(found) == whole[scenario], (nth, scenario, handler, len(found))
    return came, became


def at_every_operation(scenario: str, handler: str, durability: Any, step: int) -> dict[str, int]:
    total, nth, came = Counter[str](), 0, True
    while came:
        nth += step
        with tempfile.TemporaryDirectory() as where:
            came, became = at(nth, scenario, handler, durability, Path(where) / "logs")
        total += became
    return {**total, "operations": nth - step}


def anywhere(seed: int, durability: Any, rounds: int) -> dict[str, int]:
    """Send signals by a timer, with different handlers; the handlers that close the log come last."""
    rng, total = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as where:
        for _ in range(rounds):
            logs = klog.open(where, create=True, durability=durability)
            if "t" not in logs.topics():
                logs.create_topic("t", config={"segment.bytes": 65536, "klog.flush.bytes": 20000})
            acked = _until_closed(logs, logs.log("t"), rng, total)
            logs.close()
            with klog.open(where, recovery="strict") as again:
                found = {record.offset: record.value for record in again.log("t").read()}
                lost = [offset for offset, value in acked if found.get(offset) != value]
                assert not lost, (seed, lost[:5])
                problems = again.log("t").verify().problems
                assert not problems, (seed, problems)
    return dict(total)


def _until_closed(logs: klog.LogManager, log: klog.Log, rng: random.Random, total: Counter[str]) -> list[Acked]:
    """Append and flush, interrupted by signals, until a handler closes the log. Returns the values of the appends that
    returned."""
    acked: list[Acked] = []
    calls, inside = 0, False

    def handle(*_: object) -> None:
        nonlocal calls, inside
        calls += 1
        name = rng.choice(["flush", "append", "roll", "read", "close", "close one"][: 4 if calls < 40 else 6])
        try:
            HANDLERS[name](logs, log)
        except ReentrantCall:
            total["refused"] += 1
            if calls % 7 == 0 and inside:
                inside = False
                raise
        except StorageOffline:  # closed, or while an interrupted append is rolled back
            pass
        else:
            total["done"] += 1

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0005)
    try:
        for number in range(100_000):
            value = b"%d" % rng.getrandbits(60) + b"." * rng.choice([0, 200, 3000])
            try:
                inside = True
                info = log.append([(b"k", value)])
                acked.append((info.first_offset, value))
                if number % 5 == 0:
                    log.flush()
                inside = False
            except ReentrantCall:
                total["raised"] += 1
            except StorageOffline:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    total["offline"] += log.offline is not None  # interrupted again while the first was rolled back
    return acked


def main(scenario: str, handler: str, durability: str, times: str) -> None:
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    if scenario == "anywhere":
        print(json.dumps(anywhere(int(handler), durability, int(times))))
    else:
        print(json.dumps(at_every_operation(scenario, handler, durability, int(times))))


if __name__ == "__main__":
    main(*sys.argv[1:])
