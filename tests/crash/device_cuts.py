"""Power cuts and failures of a disk that records its writes and flushes, under ext4 or xfs while a writer runs.

Run by tests/crash/test_block_device.py as `python -m tests.crash.device_cuts KIND WHAT PLACE SEED STATES`, in a mount
namespace of its own, with all files in the directory PLACE. Prints a JSON object: the name of each event, and how often
it happened.

cuts: each workload of tests/crash/reported.py writes once, and its device keeps a list of writes and flushes. For each
workload, STATES times: the device is rebuilt up to one of them, with all, none or some of the writes since the last
flush; it is mounted; and its content is compared with what the writer had been promised by then.

lies: as cuts, but from some moment on the device's flushes did nothing, so that no promise holds. The records that klog
then serves are correct, or klog raises an error with the file and position.

faults: flushes fail, or writes of certain records fail.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import klog
from klog.disk import RealFiles
from klog.errors import CorruptLog, KlogError, StorageOffline
from klog.log.directory import checkpoint
from tests.crash import workload
from tests.crash.opening import open_logs, recovery_point
from tests.crash.reported import Send, Workload, Writer, replayed, workloads
from tests.crash.workload import CONFIG, TOPIC, Expected
from tests.support.abandon import abandon
from tests.support.block_device import HOW, MARKER, Device, Remains
from tests.support.file_systems import FileSystem, Unmountable, copy_image, end_with_parent
from tests.support.messages import ENDED, Message, Worker

Tally = collections.Counter[str]


class Bench:
    """One kind of file system, in a directory of its own."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        self.mount_point = place / "mounted"
        self.root = self.mount_point / "data"
        self.base = place / "base"

    @contextlib.contextmanager
    def device(self, prepare: Callable[[Path], None]) -> Iterator[tuple[Device, FileSystem]]:
        """A new file system on a device, mounted. prepare(root) writes before the device records anything; `base` is
        the image of the device before its first record."""
        disk = FileSystem(self.kind, self.place / "image", self.mount_point)
        disk.make()
        with disk.mounted():
            prepare(self.root)
        copy_image(disk.image, self.base)
        device = Device(disk.image, self.place)
        with device.served():
            disk.image = device.path
            with disk.mounted():
                yield device, disk

    def write(self, work: Workload, rng: random.Random) -> tuple[Remains, list[tuple[int, Any]]]:
        """Run the workload once, while the kernel writes back pages at any time. Returns the device's records, and the
        messages, each with the number of records at the moment when it was sent."""
        with self.device(work.prepare) as (device, disk):
            with Worker(
                lambda send: work.run(self.root, RealFiles(), lambda content: send((device.count, content)))
            ) as writer:
                messages: list[Message] = []
                reader = threading.Thread(target=lambda: messages.extend(writer.rest()))
                reader.start()
                while reader.is_alive():
                    disk.write_back(rng)
                    reader.join(rng.random() * 0.02)
                assert writer.end() == ENDED
            count = device.count
        remains = Remains(self.base, device.log)
        assert count <= len(remains.records)
        del remains.records[count:]
        return remains, [message.content for message in messages]

    def cuts(self, name: str, work: Workload, states: int, rng: random.Random, tally: Tally) -> None:
        remains, messages = self.write(work, rng)
        last = len(remains.records)
        for cut in sorted([last, *(rng.randint(1, last) for _ in range(states - 1))]):
            how = rng.choice(HOW)
            remains.build(self.place / "state", cut, how, rng)
            sent = [content for position, content in messages if position <= cut]
            try:
                with FileSystem(self.kind, self.place / "state", self.mount_point).mounted():
                    work.check(self.root, sent, len(sent))
            except (CorruptLog, Unmountable):
                if how != "some sectors":  # part of a page, or of a superblock, without the rest
                    raise
                tally["refused"] += 1
            except BaseException as error:
                error.add_note(f"{name}: {how} of the writes since the last flush, after {cut} of {last} records")
                raise
            tally[how] += 1
            tally["states"] += 1
        tally["records"] += last
        tally["flushes"] += sum(not one.data for one in remains.records)

    def lies(self, work: Workload, states: int, rng: random.Random, tally: Tally) -> None:
        remains, messages = self.write(work, rng)
        values = replayed(Expected, [content for _, content in messages]).values
        last = len(remains.records)
        for _ in range(states):
            at = FileSystem(self.kind, self.place / "state", self.mount_point)
            honest = rng.randint(0, last // 2)
            copy_image(self.base, self.place / "kept base")
            again = Remains(self.place / "kept base", self.place / "device.log")
            again.build(at.image, rng.randint(honest, last), rng.choice(HOW[2:]), rng, honest=honest)
            if self.kind.startswith("ext4"):
                subprocess.run(["e2fsck", "-fy", str(at.image)], capture_output=True)
            try:
                with at.mounted():
                    tally[self._served(values)] += 1
            except OSError:
                tally["file system lost"] += 1
            tally["states"] += 1

    def _served(self, values: list[bytes]) -> str:
        """Open the log and check that every record that it serves was appended at its offset."""
        try:
            with open_logs(self.root) as logs:
                if TOPIC not in logs.topics():
                    return "no topic"
                for record in logs.log(TOPIC).read():
                    assert record.value == values[record.offset], record
                logs.log(TOPIC).append([(None, b"after")])
        except (KlogError, OSError) as error:
            if str(self.root) not in str(error):
                raise AssertionError("the error does not name the place") from error
            return "refused"
        klog.verify(self.root)
        return "opened"


# ---- failures --------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[klog.LogManager, klog.Log], object]] = {
    "flush": lambda logs, log: log.flush(),
    "roll": lambda logs, log: log.roll(),
    "append": lambda logs, log: log.append([(None, MARKER)]),
    "close": lambda logs, log: logs.close(),
}
DURABLE = 5


def fail(bench: Bench, call: str, *, flushes: bool, tally: Tally) -> None:
    """Check that the first failed sync is final: the log goes offline, no clean-shutdown file is written, and the
    recovery point does not change."""
    values = [b"value %d" % number for number in range(DURABLE + 1)] + [MARKER] * (1 if call == "append" else 2)
    durability = "sync" if call == "append" else "os"

    def write(send: Send) -> None:
        logs = open_logs(bench.root, durability=durability)
        try:
            logs.create_topic(TOPIC, config={**CONFIG, "segment.bytes": 10_000})
            log = logs.log(TOPIC)
            for value in values[:DURABLE]:
                log.append([(None, value)])
            log.flush()
            device.fail(flushes=flushes, marked=not flushes)
            if call != "append":
                for value in values[DURABLE:]:
                    log.append([(None, value)])
            meets(OSError, lambda: CALLS[call](logs, log))
            device.fail()  # the disk works again, but the log does not try again
            if call != "close":
                assert log.offline
                for again in ("flush", "roll", "append"):
                    meets(StorageOffline, lambda again=again: CALLS[again](logs, log))  # type: ignore[misc]
                if not flushes:  # after a failed flush xfs does not read either
                    assert [record.value for record in log.read()][:DURABLE] == values[:DURABLE]
                meets(OSError, logs.close)
        finally:
            abandon(logs)

    with bench.device(lambda root: None) as (device, disk):
        with Worker(write) as writer:
            writer.rest()
            assert writer.end() == ENDED
        assert device.failures
        disk.restart()
        assert not os.path.exists(checkpoint.clean_shutdown_path(str(bench.root)))
        assert recovery_point(bench.root, TOPIC) <= DURABLE
        expected = Expected(values=values if call != "append" else [*values[:DURABLE], MARKER], durable=DURABLE)
        found = workload.open_state(bench.root)
        assert not found.clean
        workload.check_found(found, expected, DURABLE)
    tally["faults"] += 1


def meets(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


def main(kind: str, what: str, place: str, seed: str, states: str) -> None:
    end_with_parent(os.getppid())
    bench, rng, tally = Bench(kind, Path(place)), random.Random(int(seed)), Tally()
    if what == "cuts":
        for name, work in workloads(bench.place).items():
            bench.cuts(name, work, int(states), rng, tally)
    elif what == "lies":
        for durability in ("os", "sync"):
            bench.lies(Writer(durability), int(states), rng, tally)
    else:
        for call in CALLS:
            for flushes in (False, True):
                try:
                    fail(bench, call, flushes=flushes, tally=tally)
                except BaseException as error:
                    error.add_note(f"{call}: {'flushes' if flushes else 'writes'} fail")
                    raise
    print(json.dumps(tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
