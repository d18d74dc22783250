"""Workloads that send their promises to another process while they run, so that a power cut does not lose the promises.

run(root, files, send) works on the log.dir `root`. Before an operation begins, it sends a message that states what the
operation may leave; after the operation has returned, one that states what it has promised. check(root, messages,
promised) opens the log.dir after a power cut, and compares it with the messages. The first `promised` messages were
sent before the cut: their promises must hold. The other messages only state what else may be there.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import klog
from klog.disk import Files
from klog.errors import CorruptLog
from tests.crash import life, producing, workload
from tests.crash.compaction import Cleaning, cleaning_of
from tests.crash.workload import Policy, open_logs
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles

Send = Callable[[Any], None]
Messages = Sequence[Any]


class Workload(Protocol):
    def prepare(self, root: Path) -> None:
        """Write the content that exists before run(); the caller makes it durable."""

    def run(self, root: Path, files: Files, send: Send) -> None: ...

    def check(self, root: Path, messages: Messages, promised: int) -> None: ...


def reporting(of: type, send: Send, leave_out: frozenset[str] = frozenset()) -> Any:
    """A new expected state of class `of`, which sends its attributes whenever one of them is assigned."""

    class Reporting(of):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if not name.startswith("_") and name not in leave_out:
                send({key: it for key, it in vars(self).items() if not key.startswith("_") and key not in leave_out})

    return Reporting()


def replayed(of: type, messages: Messages) -> Any:
    """The expected state as it was last sent."""
    expectation = of()
    for name, value in (messages[-1] if messages else {}).items():
        setattr(expectation, name, value)
    return expectation


class Writer:
    """Appends with one durability and write policy, flushes, rolls, clean stops, and deaths of the process."""

    def __init__(self, durability: str, policy: Policy = ({}, 47)) -> None:
        self._durability, self._policy = durability, policy

    def prepare(self, root: Path) -> None: ...

    def run(self, root: Path, files: Files, send: Send) -> None:
        expected = reporting(workload.Expected, send)
        for ending in workload.ENDINGS:
            workload.live(root, files, expected, ending, self._durability, *self._policy)

    def check(self, root: Path, messages: Messages, promised: int) -> None:
        expected = replayed(workload.Expected, messages)
        expected.durable = replayed(workload.Expected, messages[:promised]).durable
        try:
            found = workload.open_state(root)
        except CorruptLog:  # a direct write has several pieces, each of which may be lost
            if self._policy[0].get("klog.io.write") != "direct":
                raise
            found = workload.open_state(root, "kafka")
        workload.check_found(found, expected, expected.durable)


class Lives:
    """Truncations and deletions besides appends."""

    def prepare(self, root: Path) -> None: ...

    def run(self, root: Path, files: Files, send: Send) -> None:
        for _ in life.steps(root, files, reporting(life.Life, send)):
            pass

    def check(self, root: Path, messages: Messages, promised: int) -> None:
        expected = replayed(life.Life, messages)
        before = replayed(life.Life, messages[:promised]).legal
        expected.legal = [*before, *(one for message in messages[promised:] for one in message.get("legal", ()))]
        life.check_found(life.open_state(root), expected, power=True)


class Producers:
    """Idempotent and transactional producers under several leader epochs."""

    def __init__(self, place: Path) -> None:
        rehearsal = producing.Producing()
        rehearsal.run(place / "rehearsal", CrashFiles())
        self._views = rehearsal.views

    def prepare(self, root: Path) -> None: ...

    def run(self, root: Path, files: Files, send: Send) -> None:
        reporting(producing.Producing, send, frozenset({"views"})).run(root, files)

    def check(self, root: Path, messages: Messages, promised: int) -> None:
        expected = replayed(producing.Producing, messages)
        expected.durable = replayed(producing.Producing, messages[:promised]).durable
        producing.check_found(producing.open_state(root, "strict"), expected, self._views, only_died=False)


class Compaction:
    """A cleaning of several groups, under a manager."""

    def __init__(self, place: Path) -> None:
        self._cleaning: Cleaning = cleaning_of(place / "cleaning", "manager")

    def prepare(self, root: Path) -> None:
        shutil.copytree(self._cleaning.original, root)

    def run(self, root: Path, files: Files, send: Send) -> None:
        self._cleaning.setup.clean(root, lambda: send("begins"), files=files, abandoned=True)
        send("done")

    def check(self, root: Path, messages: Messages, promised: int) -> None:
        self._cleaning.check(root)


class Topics:
    """Topics are created, written and flushed, and deleted. Each topic exists as a whole or not at all."""

    PARTITIONS = 3
    RECORDS = 4

    def prepare(self, root: Path) -> None: ...

    def run(self, root: Path, files: Files, send: Send) -> None:
        logs = open_logs(root, files)
        try:
            for number in range(12):
                name = f"t{number}"
                send((name, "creating"))
                logs.create_topic(name, partitions=self.PARTITIONS, config={"segment.bytes": 200})
                send((name, "created"))
                for log in logs.logs():
                    if log.topic == name:
                        for record in range(self.RECORDS):
                            log.append([(b"k", b"%d" % record)])
                        log.flush()
                send((name, "flushed"))
                if number % 3 == 2:
                    gone = f"t{number - 1}"
                    send((gone, "deleting"))
                    logs.delete_topic(gone)
                    send((gone, "deleted"))
            send(("", "stopping"))
            logs.close()
        finally:
            abandon(logs)

    def check(self, root: Path, messages: Messages, promised: int) -> None:
        states = dict(messages[:promised])
        states |= {name: state for name, state in messages[promised:] if state.endswith("ing")}
        with open_logs(root) as logs:
            found = logs.topics()
            for name, state in states.items():
                if state in ("created", "flushed"):
                    assert name in found, f"{name} is {state}, but not there"
                if state == "deleted":
                    assert name not in found, f"{name} was deleted, and is there again"
                if name in found:
                    assert found[name] == list(range(self.PARTITIONS)), f"{name}: {found[name]}"
            assert set(found) <= set(states)
            for log in logs.logs():
                values = [int(record.value or b"-1") for record in log.read()]
                assert values == list(range(len(values)))
                assert len(values) == self.RECORDS or states[log.topic] != "flushed", f"{log.name}: {values}"
                log.append([(b"k", b"%d" % len(values))])


class GroupCommit:
    """Threads append to one log under durability="sync" and share its syncs."""

    THREADS = 4
    EACH = 12

    def prepare(self, root: Path) -> None: ...

    def run(self, root: Path, files: Files, send: Send) -> None:
        with klog.open(root, create=True, durability="sync", files=files) as logs:
            logs.create_topic("shared", config={"segment.bytes": 1500})
            log = logs.log("shared")
            failed: list[Exception] = []
            sending = threading.Lock()

            def report(message: object) -> None:
                with sending:
                    send(message)

            def work(me: int) -> None:
                try:
                    for number in range(self.EACH):
                        value = b"%d.%d" % (me, number) + b"z" * 50
                        report(("appending", value, -1))
                        info = log.append([(b"k", value)])
                        report(("on disk", value, info.first_offset))
                except Exception as error:
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(me,)) for me in range(self.THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0]

    def check(self, root: Path, messages: Messages, promised: int) -> None:
        sent = {value for state, value, _ in messages if state == "appending"}
        kept = {offset: value for state, value, offset in messages[:promised] if state == "on disk"}
        with open_logs(root) as logs:
            if "shared" not in logs.topics():
                assert not kept
                return
            log = logs.log("shared")
            found = {record.offset: record.value for record in log.read()}
            assert sorted(found) == list(range(log.log_end_offset)), "a hole"
            assert set(found.values()) <= sent and len(set(found.values())) == len(found)
            assert kept.items() <= found.items(), "an acknowledged record is gone"
            assert log.append([(b"k", b"after")]).first_offset == len(found)


def workloads(place: Path) -> dict[str, Workload]:
    """All workloads by name. place: a directory for the files that they prepare once."""
    return {
        "os": Writer("os"),
        "interval": Writer("interval"),
        "sync": Writer("sync"),
        "zeros": Writer("sync", ({"klog.io.preallocate": "zeros"}, 47)),
        "behind": Writer("os", ({"klog.io.write.behind.bytes": 4096, "internal.segment.bytes": 30_000}, 2000)),
        "dontcache": Writer("os", ({"klog.io.write": "dontcache"}, 47)),
        "direct": Writer("sync", ({"klog.io.write": "direct", "internal.segment.bytes": 50_000}, 3000)),
        "lives": Lives(),
        "producers": Producers(place),
        "compaction": Compaction(place),
        "topics": Topics(),
        "group commit": GroupCommit(),
    }
