"""Operations in rare circumstances: a kernel that refuses calls, cold pages, a fault that follows another one, a reader
beside a writer, files of Kafka's brokers.

What the kernel does is given by tests.support.intercept, which test_every_fault.py preloads; FailingFiles gives the faults
that an operation meets before the one that is injected. OPERATIONS are all: these, and those of the other modules.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import klog
from klog.broker import Broker
from klog.broker.admin.dynamic_configs import DynamicConfigs
from klog.broker.broker import _cluster_id
from klog.clock import ManualClock
from klog.coordinator.transactions.producer_ids import ProducerIds
from klog.disk import RealFiles, directory_lock
from klog.disk.lock import check_directory_lock
from klog.disk.monitor import PageCacheMonitor
from klog.disk.proc import read_vmstat
from klog.errors import (
    AlreadyLocked,
    HandoverRefused,
    KlogError,
    ReentrantCall,
    UnknownTopicOrPartition,
)
from klog.handover import adopt
from klog.log.load import reindex
from klog.log.staged.layout import STAGING
from klog.log.staged.writers import announce
from klog.manager import move_note
from klog.manager.by_hand import compact_directory
from klog.repairing import repair
from klog.security import ClientQuotas, SecurityConfig, Users
from tests.cleaner import test_overflow as overflow
from tests.crash import staged
from tests.crash.interrupted import OPERATIONS, damaged_in_the_middle, last_with_records
from tests.crash.operations import (
    SMALL,
    TWELVE,
    WRITE_CONFIGS,
    Book,
    appends,
    committed_only,
    content,
    damaged,
    damaged_indexes,
    in_one_place,
    in_two_directories,
    is_large,
    is_one_partition,
    is_prefix,
    is_there_or_repaired,
    large,
    nothing,
    one_partition,
    opened,
    opened_two,
    operation,
    two_topics,
    unchanged,
)
from tests.handover.test_adopt import place, ran, state
from tests.log import test_overflow as splits
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.failing_files import FailingFiles
from tests.support.intercept import given, without_kinds
from tests.support.rounds import checkpoint_round

__all__ = ["OPERATIONS"]


@contextlib.contextmanager
def log_at(path: Path, **options: Any) -> Iterator[klog.Log]:
    """Closed if all goes well, else abandoned."""
    log = klog.Log.open(path, **{"config": SMALL, "clock": ManualClock(NOW), **options})
    try:
        yield log
        log.close()
    finally:
        abandon(log)


def values(log: klog.Log) -> list[bytes | None]:
    return [record.value for record in log.read()]


# ---- views ---------------------------------------------------------------------------------------------------------------


@operation(two_topics, unchanged)
def close_while_data_is_in_use(root: Path, _book: Book) -> None:
    """V4 of klog/disk/_views.pyx: once the lock is gone, another process may shorten the files."""
    with opened(root) as logs:
        log = logs.log("t")
        view = log.fetch(0, 1 << 20).memory()
        before, path = bytes(view), Path(log.path) / f"{0:020d}.log"
    stored = path.read_bytes()
    os.truncate(path, 0)
    assert bytes(view) == before
    path.write_bytes(stored)


# ---- sends, to a file that shows what it has taken ------------------------------------------------------------------------


def _send_to_a_file(root: Path, flags: int = 0) -> None:
    """W2 of klog/disk/send.py: what an error's `sent` states has arrived, and so has all if there is none."""
    with opened(root) as logs:
        data = logs.log("t").fetch(0, 1 << 20)
        with os.fdopen(os.open(root / "sent", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags), "wb", 0) as target:
            sent = 0
            try:
                sent = data.send_to(target)
            except OSError as error:
                sent = error.sent  # type: ignore[attr-defined]
                if "bytes had been sent" not in str(error):  # the target's errors name no file
                    raise
            finally:
                arrived = (root / "sent").read_bytes()
                assert len(arrived) >= sent and bytes(data.memory()).startswith(arrived)


def _sends(name: str, *refused: tuple[str, str], flags: int = 0, prepare: Callable[[Path], None] = large) -> None:
    def run(root: Path, _book: Book) -> None:
        with contextlib.ExitStack() as kernel:
            for kind, call in refused:
                kernel.enter_context(given(kind, call))
            _send_to_a_file(root, flags)

    run.__name__ = f"send_{name}"
    operation(prepare, is_large if prepare is large else unchanged)(run)


_sends("by_splice", ("EINVAL", "sendfile"))
_sends("by_copy", ("EINVAL", "sendfile"), ("EINVAL", "splice"))
_sends("to_a_target_that_fails", ("EIO", "sendfile"))
_sends("without_waiting", flags=os.O_NONBLOCK, prepare=two_topics)


@operation(two_topics, unchanged)
def send_parts(root: Path, _book: Book) -> None:
    """Bytes between slices, to a file. O1 of klog/log/read/send.py."""
    with opened(root) as logs:
        data = logs.log("t").fetch(0, 1 << 20)
        whole = b"head" + bytes(data.memory()) + b"between" + bytes(data.memory())
        parts = klog.Outgoing([b"head", data, b"between", data])
        with (root / "sent").open("wb", 0) as target:
            for _ in range(3):  # a call that failed is repeated, and goes on
                with contextlib.suppress(OSError):
                    parts.send_to(target)
            arrived = (root / "sent").read_bytes()
            assert len(arrived) >= parts.sent and (whole.startswith(arrived) or parts.sent < len(arrived))


@operation(large, is_large)
def send_in_an_event_loop(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        data = logs.log("t").fetch(0, 1 << 20)
        parts = klog.Outgoing([data] * 4)
        with os.fdopen(
            os.open(root / "sent", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK), "wb", 0
        ) as target:
            try:
                asyncio.run(parts.send_to_async(target))
            except OSError as error:
                if error.filename is not None:
                    raise
            assert (root / "sent").stat().st_size >= parts.sent


@operation(large, is_large)
def send_encrypted(root: Path, _book: Book) -> None:
    """The keys are exchanged without certificates."""
    import ssl

    ours, theirs = socket.socketpair()
    ends = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("aNULL:@SECLEVEL=0")
        ends.append(context)
    got: list[bytes] = []

    def receive() -> None:
        with contextlib.suppress(OSError), ends[1].wrap_socket(theirs) as there:
            while piece := there.recv(1 << 16):
                got.append(piece)

    with opened(root) as logs:
        data = logs.log("t").fetch(0, 1 << 20)
        whole, sent = bytes(data.memory()), 0
        thread = threading.Thread(target=receive)
        thread.start()
        try:
            with ends[0].wrap_socket(ours, server_side=True) as here:
                sent = data.send_to(here)
        except (OSError, MemoryError) as error:
            sent = getattr(error, "sent", 0)
            raise
        finally:
            ours.close()
            thread.join()
            assert b"".join(got) == whole[:sent]


# ---- the page cache -------------------------------------------------------------------------------------------------------


def _looks(root: Path) -> None:
    with opened(root) as logs:
        for cells in (0, 4):
            assert [found.topic for found in logs.page_cache(cells=cells)] == ["t", "t", "u", "u"]
        logs.log("t").page_cache(cells=4)
        logs.metrics(page_cache=True)
    paths = [str(path) for path in sorted(root.glob("t-0/*.log"))]
    assert PageCacheMonitor(paths, proc_root=str(root / "proc")).sample().files.keys() == set(paths)


def sparse(root: Path) -> None:
    """The last file of t-0 has room for more, as a broker that preallocates leaves it; a part of it is no page yet."""
    two_topics(root)
    os.truncate(last_with_records(root), 9 << 20)
    (root / "proc").mkdir()
    (root / "proc" / "vmstat").write_text("pgpgin 1\n")


def sparse_hold(root: Path, _notes: list[Any]) -> None:
    assert read_vmstat(str(root / "proc")) == {"pgpgin": 1}
    shutil.rmtree(root / "proc")
    unchanged(root, [])


@operation(sparse, sparse_hold)
def look_at_the_page_cache(root: Path, _book: Book) -> None:
    _looks(root)


@operation(sparse, sparse_hold)
def look_at_the_page_cache_of_an_old_kernel(root: Path, _book: Book) -> None:
    with given("ENOSYS", "cachestat"):
        _looks(root)


@operation(large, is_large)
def read_with_samples(root: Path, _book: Book) -> None:
    """One read of sixteen is sampled; a file system may refuse that, and then no other one is."""
    with opened(root, read_only=True) as logs:
        for _ in range(16):
            assert bytes(logs.log("t").fetch(0, 1 << 12).memory())
    with opened(root, read_only=True) as logs:
        for _ in range(9):
            assert len(values(logs.log("t"))) == 12


def one_large_segment(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config={"klog.io.read.ahead.bytes": 1 << 20})
        for number in range(12):
            logs.log("t").append([(b"k", b"%d" % number * 300_000)])


def is_one_large_segment(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert values(logs.log("t")) == [b"%d" % number * 300_000 for number in range(12)]


@operation(one_large_segment, is_one_large_segment)
def read_ahead(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        assert len(values(logs.log("t"))) == 12


@operation(large, is_large)
def scan_cold_files(root: Path, _book: Book) -> None:
    with given("cold", "cachestat"), opened(root) as logs:
        assert len(values(logs.log("t"))) == 12
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink()
    with given("cold", "cachestat"), opened(root) as logs:
        reader = iter(logs.log("t").read())
        next(reader)
        with given("ENOSYS", "cachestat"):  # not reported any more, so what was read ahead is waited for
            del reader


def several(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config={**SMALL, "cleanup.policy": "compact"})
        for number in range(30):
            logs.log("t").append([(b"k%d" % (number % 5), b"%d" % number * 40)])
        logs.log("t").roll()


def newest(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        found = {record.key: record.value for record in logs.log("t").read()}
        assert found == {b"k%d" % (n % 5): b"%d" % n * 40 for n in range(25, 30)}


@operation(several, newest)
def clean_cold_files(root: Path, _book: Book) -> None:
    with given("cold", "cachestat"), opened(root) as logs:
        logs.log("t").compact()


# ---- reads ------------------------------------------------------------------------------------------------------------------


def in_batches(root: Path) -> None:
    """Three batches of four records, in one segment; records of the first are deleted."""
    with opened(root) as logs:
        logs.create_topic("t", config={"cleanup.policy": "delete", "retention.ms": -1})
        for first in (0, 4, 8):
            logs.log("t").append([(b"k", value, NOW - first) for value in TWELVE[first : first + 4]])
        logs.log("t").delete_records(2)


def is_in_batches(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert values(logs.log("t")) == TWELVE[2:]


@operation(in_batches, is_in_batches)
def look_up_inside_batches(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        log = logs.log("t")
        assert log.count(3, 6) == 3
        found = log.list_offset("max_timestamp")
        assert found is not None and found.offset == 2


def one_batch(root: Path) -> None:
    """One batch of twelve records; the first five are deleted."""
    with opened(root) as logs:
        logs.create_topic("t", config={"cleanup.policy": "delete", "retention.ms": -1})
        logs.log("t").append([(b"k", value) for value in TWELVE])
        logs.log("t").delete_records(5)


def one_batch_or_none(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        log = logs.log("t")
        assert values(log) in (TWELVE[5:], []) and 5 <= log.log_end_offset <= 12


@operation(one_batch, one_batch_or_none)
def truncate_inside_the_batch_at_the_log_start(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.log("t").truncate_to(7)


def a_batch_of_a_later_segment(root: Path) -> None:
    """Four records, a segment whose batch has the other eight, and another one; the first five records are deleted."""
    with opened(root) as logs:
        logs.create_topic("t", config={"cleanup.policy": "delete", "retention.ms": -1})
        log = logs.log("t")
        for records in (TWELVE[:4], TWELVE[4:], [b"later"]):
            log.append([(b"k", value) for value in records])
            log.roll()
        log.delete_records(5)


def a_later_batch_or_none(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        log = logs.log("t")
        assert values(log) in ([*TWELVE[5:], b"later"], TWELVE[5:], []) and 5 <= log.log_end_offset <= 13


@operation(a_batch_of_a_later_segment, a_later_batch_or_none)
def truncate_inside_the_batch_at_the_log_start_of_a_later_segment(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.log("t").truncate_to(7)


@operation(nothing, is_prefix)
def retention_of_a_segment_that_was_touched(root: Path, book: Book) -> None:
    """Its file has changed long after its youngest record: retention reads whether one record misleads it."""
    with opened(root) as logs:
        logs.create_topic("t", config={"segment.ms": 1000, "retention.ms": 10**15, "cleanup.policy": "delete"})
        log = logs.log("t")
        book.note(("appending", [b"a"]))
        log.append([(None, b"a", NOW - 10**9)])
        book.note(("appended", [b"a"]))
        log.update_config(log.config.replace({"retention.ms": 10**8}))
        log.apply_retention()


def long_index(root: Path) -> None:
    """A last segment whose indexes are longer than a page."""
    with opened(root) as logs:
        logs.create_topic("t", config={"index.interval.bytes": 0, "cleanup.policy": "delete"})
        for number in range(700):
            logs.log("t").append([(b"k", b"%d" % number, NOW + number)])


def is_long(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert values(logs.log("t")) == [b"%d" % number for number in range(700)]


@operation(long_index, is_long)
def open_a_long_index(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        assert logs.log("t").log_end_offset == 700


@operation(two_topics, unchanged)
def read_small_files_again_after_a_signal(root: Path, _book: Book) -> None:
    with given("EINTR", "pread", ending="klog-topics.json", times=1), opened(root) as logs:
        assert len(values(logs.log("t"))) == 12


# ---- a reader beside a writer ---------------------------------------------------------------------------------------------


def put_back(root: Path, _notes: list[Any]) -> None:
    if (root / "aside").exists():
        (root / "aside").rename(root / "t-0")
    unchanged(root, [])


@operation(two_topics, put_back)
def read_a_partition_that_goes_away(root: Path, _book: Book) -> None:
    with log_at(root / "t-0", read_only=True) as reader:
        begun = reader.read()
        (root / "t-0").rename(root / "aside")
        for read in (begun.__iter__, reader.read):
            with contextlib.suppress(UnknownTopicOrPartition):
                raise AssertionError(f"{len(list(read()))} records")
    (root / "aside").rename(root / "t-0")


def empty_topic(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config={"cleanup.policy": "delete"})
        logs.log("t").append([(None, b"first")])


@operation(empty_topic, lambda root, notes: None)
def follow_a_writer_far(root: Path, _book: Book) -> None:
    with opened(root, read_only=True) as readers, opened(root) as logs:
        reader = readers.log("t")
        assert len(values(reader)) == 1 and reader.segments[0].index.entries >= 0
        for _ in range(3):
            logs.log("t").append([(None, b"x" * 400_000)])
        assert len(values(reader)) == 4


@operation(empty_topic, lambda root, notes: None)
def follow_a_writer_that_rolls(root: Path, _book: Book) -> None:
    with opened(root, read_only=True) as readers, opened(root) as logs:
        reader, log = readers.log("t"), logs.log("t")
        for count in (2, 3, 4):  # from the second time on the reader has closed segments, which may be compacted
            log.roll()
            log.append([(None, b"next")])
            assert len(values(reader)) == count


@operation(empty_topic, lambda root, notes: None)
def read_a_snapshot_whose_end_is_compacted(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.alter_topic("t", {"cleanup.policy": "compact"})
        log = logs.log("t")
        log.append([(b"k", b"v")])
        with log.snapshot() as snapshot:
            log.append([(b"other", b"v")])
            log.compact(roll=True)
            assert values(snapshot) == [b"v"]


class ReadsDuringRenames(RealFiles):
    """A signal handler of the thread that renames reads the segments."""

    segments: Sequence[Any] = ()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith(".log.deleted"):
            for segment in self.segments:
                segment.file.read(0, 1)


# ---- faults that follow others ---------------------------------------------------------------------------------------------


@operation(two_topics, lambda root, _notes: some_suffix(root))
def delete_segments_on_a_full_disk(root: Path, _book: Book) -> None:
    """No space for a rename: they are unlinked at once."""
    files = FailingFiles(1, errno.ENOSPC, forever=True, armed=False)
    files.only = ("rename",)
    with opened(root, files=files) as logs:
        files.armed = True
        logs.log("t").delete_records(9)
        logs.log("t").apply_retention()
        files.armed = False


def some_suffix(root: Path) -> None:
    found = content(root)
    assert found["t-0"] == TWELVE[12 - len(found["t-0"]) :] and len(found["t-0"]) >= 3
    assert {name: found[name] for name in ("t-1", "u-0", "u-1")} == dict.fromkeys(("t-1", "u-0", "u-1"), TWELVE)


@operation(several, newest)
def clean_with_too_many_open_files(root: Path, _book: Book) -> None:
    """Each sync of a directory fails once, and what was renamed before is renamed back."""
    for nth in range(1, 9):
        files = FailingFiles(nth, errno.EMFILE, armed=False)
        files.only = ("fsync_dir",)
        with contextlib.suppress(OSError, KlogError), opened(root, files=files) as logs:
            files.armed = True
            try:
                logs.log("t").compact()
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
            files.armed = False


@operation(two_topics, unchanged)
def read_through_files_of_descriptors(root: Path, _book: Book) -> None:
    """A LogFile that was made of a descriptor."""
    with opened(root, read_only=True, files=FailingFiles()) as logs:
        assert values(logs.log("t")) == TWELVE


# ---- locks ---------------------------------------------------------------------------------------------------------------


@operation(one_partition, is_one_partition)
def refuse_a_second_writer(root: Path, _book: Book) -> None:
    """By a link, and where the directory was moved to, too; while a Log.open is there; and a replacement of a file within
    another one."""
    (root / "link").mkdir()
    (root / "link" / "t-0").symlink_to(root / "t-0")
    try:
        with log_at(root / "t-0"):
            for second in (lambda: klog.Log.open(root / "link" / "t-0"), lambda: klog.open(root)):
                with contextlib.suppress(AlreadyLocked):
                    raise AssertionError(f"not refused: {second()}")
        with klog.open(root, clock=ManualClock(NOW)) as logs:
            logs.log("t")
            (root / "other").mkdir()
            (root / "t-0").rename(root / "other" / "t-0")  # beside a lock that is free
            try:
                with klog.open(root / "other") as moved, contextlib.suppress(AlreadyLocked):
                    raise AssertionError(f"not refused: {moved.log('t')}")
            finally:
                (root / "other" / "t-0").rename(root / "t-0")
            (root / "other" / "t-0").symlink_to(root / "t-0")
            with klog.open(root / "other") as linked, contextlib.suppress(OSError):
                raise AssertionError(f"not refused: {linked.log('t')}")
            klog.verify(root / "other")
        with log_at(root / "link" / "t-0") as log:
            assert log.path == str(root / "t-0"), (
                "the locks and checkpoints beside a link are not those of the directory"
            )
        with directory_lock(str(root)), contextlib.suppress(ReentrantCall):
            check_directory_lock(str(root), "a replacement")
            raise AssertionError("not refused")
    finally:
        shutil.rmtree(root / "link")
        shutil.rmtree(root / "other", ignore_errors=True)


def is_prefix_of_one(root: Path, _notes: list[Any]) -> None:
    with log_at(root / "t-0") as log:
        assert values(log) == []


def a_link_to_nothing(root: Path) -> None:
    (root / "links").mkdir()


@operation(a_link_to_nothing, is_prefix_of_one)
def create_a_log_by_a_link(root: Path, _book: Book) -> None:
    (root / "links" / "t-0").symlink_to(root / "t-0")
    with log_at(root / "links" / "t-0") as log:
        assert log.path == str(root / "t-0")


@operation(one_partition, is_one_partition)
def refuse_a_directory_that_cannot_be_written(root: Path, _book: Book) -> None:
    with given("EACCES", "faccessat"), contextlib.suppress(PermissionError), log_at(root / "t-0"):
        pass


@operation(two_topics, unchanged)
def plan_a_repair_without_a_lock(root: Path, _book: Book) -> None:
    with given("EROFS", "creat", ending=".lock"), given("EACCES", "access"), without_kinds():
        assert repair(root, dry_run=True, clock=ManualClock(NOW))["partitions"] == []


def damaged_beside_staged_files(root: Path) -> None:
    damaged(root)
    job = root / "data" / "t-0" / f"{STAGING}job"
    job.mkdir()
    (job / "part").write_bytes(b"staged")


@operation(damaged_beside_staged_files, is_there_or_repaired)
def repair_beside_staged_files(root: Path, _book: Book) -> None:
    with without_kinds():
        repair(root / "data", clock=ManualClock(NOW))


# ---- segments that the index cannot represent ------------------------------------------------------------------------------


def far_from_its_name(root: Path) -> None:
    """A closed segment whose every batch lies too far from its name, as a clean stop leaves it."""
    splits.make(
        root / "t-0",
        {0: overflow.batches(overflow.FAR[1], 4), 3 * overflow.BEYOND: overflow.batches(3 * overflow.BEYOND, 1)},
    )


def is_far_from_its_name(root: Path, _notes: list[Any]) -> None:
    with overflow.opened(root / "t-0") as log:
        found = {record.key: record.value for record in log.read()}
        assert found == {
            b"k%d" % n: b"%d" % ((3 * overflow.BEYOND if n < 3 else overflow.FAR[1]) + n) for n in range(12)
        }


@operation(far_from_its_name, is_far_from_its_name)
def clean_a_segment_far_from_its_name(root: Path, _book: Book) -> None:
    log = overflow.opened(root / "t-0")
    try:
        log.compact()
        log.close()
    finally:
        abandon(log)


SETS = [[0, 1, 2], [3], [splits.BEYOND + 1, splits.BEYOND + 2], [splits.BEYOND + 3, splits.BEYOND + 5]]


def old_wrappers(root: Path) -> None:
    splits.make(root / "t-0", {0: b"".join(map(splits.wrapper, SETS))})


def wrappers_hold(root: Path, _notes: list[Any]) -> None:
    with splits.open_log(root / "t-0") as log:
        assert [segment.base_offset for segment in log.segments] == [0, splits.BEYOND + 1]
        assert splits.offsets(log) == [offset for one in SETS for offset in one]


@operation(old_wrappers, wrappers_hold)
def split_old_wrappers(root: Path, _book: Book) -> None:
    splits.open_log(root / "t-0").close()


# ---- what a load meets -------------------------------------------------------------------------------------------------------


def empty_swap(root: Path) -> None:
    one_partition(root)
    (root / "t-0" / f"{0:020d}.log.swap").write_bytes(b"")


@operation(empty_swap, is_one_partition)
def drop_an_empty_swap(root: Path, _book: Book) -> None:
    with log_at(root / "t-0", clean_shutdown=False) as log:
        assert [record.value for record in log.read(isolation="read_committed")] == TWELVE


def stray_transaction_index(root: Path) -> None:
    damaged_indexes(root)
    (root / "t-0" / f"{0:020d}.txnindex").write_bytes(b"")


@operation(stray_transaction_index, is_one_partition)
def rebuild_an_empty_transaction_index(root: Path, _book: Book) -> None:
    beside = root / "beside"
    beside.mkdir()
    with log_at(root / "t-0", read_only=True) as log:
        rebuilt = reindex.rebuild_indexes(log._core, {segment.base_offset for segment in log.segments}, str(beside))
    reindex.put_in_place(str(root / "t-0"), rebuilt, str(beside), RealFiles())


@operation(damaged_in_the_middle, lambda root, _notes: cut_somewhere(root))
def repair_that_puts_segments_aside(root: Path, _book: Book) -> None:
    repair(root, clock=ManualClock(NOW))


def cut_somewhere(root: Path) -> None:
    repair(root, clock=ManualClock(NOW + 1))
    found = content(root)["t-0"]
    assert found == TWELVE[: len(found)] and 0 < len(found) < 12


def begun_move(root: Path) -> None:
    in_two_directories(root)
    (root / "b" / f"t-0.{uuid.UUID(int=7).hex}-future").mkdir()


@operation(begun_move, in_one_place)
def start_after_a_move_without_a_note(root: Path, _book: Book) -> None:
    with opened_two(root) as logs:
        assert values(logs.log("t")) == TWELVE


def copy_alone(root: Path) -> None:
    """The log.dir of the original is lost, just before the copy would have got its name."""
    in_two_directories(root)
    copy = (root / "a" / "t-0").rename(root / "b" / f"t-0.{uuid.UUID(int=7).hex}-future")
    move_note.write(RealFiles(), str(copy), move_note.MoveNote(("t", 0), str(root / "lost"), True, 12))


@operation(copy_alone, in_one_place)
def start_with_only_the_copy_of_a_move(root: Path, _book: Book) -> None:
    with opened_two(root) as logs:
        assert values(logs.log("t")) == TWELVE


def last_in_one_place(root: Path, _notes: list[Any]) -> None:
    with opened_two(root) as logs:
        found = values(logs.log("t"))
        assert found == TWELVE[12 - len(found) :] and len(found) >= 3
        assert len(list(root.glob("*/t-0"))) == 1 and not list(root.glob("*/*-future"))


@operation(in_two_directories, last_in_one_place)
def move_while_segments_are_deleted(root: Path, _book: Book) -> None:
    with opened_two(root) as logs:
        log = logs.log("t")

        def progress(_event: object) -> None:
            if log.log_start_offset == 0:
                log.delete_records(9)
                log.apply_retention()

        logs.move("t", 0, root / "b", progress=progress)


@operation(two_topics, lambda root, _notes: two_or_none(root))
def delete_the_last_topic_with_a_high_watermark(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.log("t").update_high_watermark(7)
        checkpoint_round(logs)
        logs.delete_topic("t")
        checkpoint_round(logs)


def two_or_none(root: Path) -> None:
    found = content(root)
    assert all(each == TWELVE for each in found.values()) and {"u-0", "u-1"} <= found.keys()


@operation(lambda root: (root / "empty").mkdir(), lambda root, _notes: None)
def refuse_to_compact_what_is_no_log_dir(root: Path, _book: Book) -> None:
    with contextlib.suppress(UnknownTopicOrPartition):
        raise AssertionError(f"not refused: {compact_directory(root / 'empty')}")


@operation(committed_only, lambda root, _notes: staged.check(root))
def read_beside_a_commit_in_a_directory_that_cannot_be_listed(root: Path, _book: Book) -> None:
    topic, partition = staged.TARGETS[0]
    with given("EACCES", "opendir", ending=root.name), log_at(root / f"{topic}-{partition}", read_only=True) as log:
        assert values(log) == staged.OLD[topic][partition]


def staged_elsewhere(root: Path) -> None:
    staged.fill(root)
    job = staged.stage(root)
    announce(str(root), job.token, None, RealFiles())


def old_only(root: Path, _notes: list[Any]) -> None:
    assert staged.content(root, read_only=True) == staged.OLD == staged.content(root, read_only=False)


@operation(staged_elsewhere, old_only)
def sweep_a_job_of_an_unknown_driver(root: Path, _book: Book) -> None:
    """It is left alone for a day, then removed."""
    klog.open(root, clock=ManualClock(NOW)).close()
    assert list(root.glob("klog-staging-*"))
    with without_kinds():
        klog.open(root, clock=ManualClock(10**14)).close()
    assert not list(root.glob("klog-staging-*"))


@operation(two_topics, lambda root, _notes: some_suffix(root))
def read_during_renames(root: Path, _book: Book) -> None:
    files = ReadsDuringRenames()
    with opened(root, files=files) as logs:
        log = logs.log("t")
        files.segments = log.segments
        log.delete_records(9)
        log.apply_retention()


# ---- directories and files of brokers --------------------------------------------------------------------------------------


def with_files_of_clients(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config=SMALL)
        DynamicConfigs(logs).alter(per_broker=False, changes={"log.cleaner.backoff.ms": "7"})
    Users(str(root)).set_password("ann", "SCRAM-SHA-256", "pencil")
    quotas = ClientQuotas(str(root), SecurityConfig.of({}), ManualClock(NOW))
    quotas.change({(("user", "ann"),): {"producer_byte_rate": 5.0}})


def files_of_clients_hold(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert DynamicConfigs(logs).default == {"log.cleaner.backoff.ms": "7"}
    assert list(Users(str(root)).names()) == ["ann"]
    assert len(ClientQuotas(str(root), SecurityConfig.of({}), ManualClock(NOW)).quotas()) == 1


@operation(with_files_of_clients, files_of_clients_hold)
def serve_what_clients_have_set(root: Path, _book: Book) -> None:
    """A start that cannot read it fails: served without users, quotas or configurations, it would be another broker."""
    with Broker(root, listeners=["127.0.0.1:0"], clock=ManualClock(NOW)) as broker:
        assert broker._serving is not None
        protection = broker._serving._protection
        assert protection._users.made is not None and protection._quotas.made is not None
        assert broker._serving._admin.made is not None


def of_kafka(root: Path) -> None:
    topic_id = uuid.UUID(int=9 << 90)
    ran(root, {"t": state(topic_id)})
    place(root, "t", topic_id)
    (root / "meta.properties").write_text("version=1\ncluster.id=of-kafka\nnode.id=1\n")


def is_adopted_or_not(root: Path, _notes: list[Any]) -> None:
    """A4 of klog/handover/adopt.py."""
    adopt(root)
    assert ProducerIds(RealFiles(), str(root), list).next() >= 1 << 40
    with opened(root) as logs:
        assert logs.topics()["t"] == [0]


@operation(of_kafka, is_adopted_or_not)
def adopt_a_directory_of_kafka(root: Path, _book: Book) -> None:
    broker = Broker(root, listeners=["127.0.0.1:0"], clock=ManualClock(NOW))
    with contextlib.suppress(HandoverRefused), broker:
        raise AssertionError("served before it was adopted")
    adopt(root)
    assert _cluster_id(str(root)) == "of-kafka"


# ---- direct writes -----------------------------------------------------------------------------------------------------------


@operation(nothing, is_prefix)
def direct_writes_that_are_cut_short(root: Path, book: Book) -> None:
    with given("short", "pwrite", ending=".log"):
        appends(root, book, WRITE_CONFIGS["direct"], "os", 70_000)
