"""All files except the .log files are caches: any of them may be missing or damaged, and no result changes.

The tests damage indexes, transaction indexes, snapshots, the epoch file and the checkpoints of the log.dir, alone and
together, in Kafka's logs and in generated logs. They open the logs after a clean stop and after a crash, with both
recovery policies. They leave out damage that no checksum and no batch can reveal: a changed digit in a checkpoint that is
still a number, the start of the first leader epoch (it moves with the log start), and a valid snapshot with wrong content.
A rebuild also restores producers that a snapshot had dropped as expired.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klog
from klog.clock import ManualClock
from klog.log.directory.checkpoint import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from klog.record import decode, encode
from klog.record.control import marker
from tests.support import golden

T = 1_700_000_000_000
CONFIG = {"index.interval.bytes": 200, "segment.index.bytes": 4096, "retention.ms": -1, "retention.bytes": -1}
CHECKPOINTS = (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, "cleaner-offset-checkpoint")
GOLDEN = [
    ("unclean", "crash-0"), ("unclean", "crash-txn-0"), ("txn", "payments-0"), ("txn-v1", "orders-0"),
    ("epochs", "terms-0"), ("idempotent", "sensor-0"), ("segments", "seg-lz4-0"), ("appendtime", "stamped-0"),
]  # fmt: skip


def random_log(seed: int, directory: Path) -> None:
    """Write a log of small segments, with several producers, with and without transactions, and several leader epochs."""
    rng = random.Random(seed)
    offset, epoch, base, data = 0, 0, 0, b""
    sequences: dict[int, int] = {}
    open_: set[int] = set()
    for _ in range(rng.randrange(20, 120)):
        if rng.random() < 0.1:
            epoch += rng.randrange(1, 4)
        common: dict[str, Any] = {"base_offset": offset, "leader_epoch": epoch}
        if open_ and rng.random() < 0.3:
            producer = rng.choice(sorted(open_))
            open_.discard(producer)
            kind = rng.choice(["abort", "commit"])
            batch, count = encode([(*marker(kind, 3), T + offset)], producer_id=producer, producer_epoch=1,
                                  is_transactional=True, is_control=True, **common), 1  # fmt: skip
        else:
            count = rng.randrange(1, 5)
            records = [
                (b"k%d" % n, rng.randbytes(rng.randrange(40)), T + offset + rng.randrange(9)) for n in range(count)
            ]
            producer = rng.choice([-1, -1, 1, 2, 3, 4])
            if producer >= 0:
                transactional = producer > 1
                common |= {"producer_id": producer, "producer_epoch": 1, "is_transactional": transactional}
                common["base_sequence"] = sequences.get(producer, 0)
                sequences[producer] = common["base_sequence"] + count
                if transactional:
                    open_.add(producer)
            batch = encode(records, compression=rng.choice([None, "lz4"]), **common)
        data += batch
        offset += count
        if rng.random() < 0.15:
            (directory / f"{base:020d}.log").write_bytes(data)
            base, data = offset, b""
    (directory / f"{base:020d}.log").write_bytes(data)


def prepared(root: Path, source: tuple[str, str] | int) -> tuple[Path, int]:
    """Write a log.dir with one partition, closed cleanly, with all caches. Return the partition and the time of its clock."""
    root.mkdir(parents=True)
    if isinstance(source, int):
        directory, now = root / "made-0", T + 1000
        directory.mkdir()
        random_log(source, directory)
        (root / RECOVERY_POINT).write_text("0\n0\n")
    else:
        case, name = source
        logdir = golden.HOME / case / "logdir"
        directory = Path(shutil.copytree(logdir / name, root / name))
        for checkpoint in CHECKPOINTS:
            shutil.copy2(logdir / checkpoint, root)
        (partition,) = [part for part in golden.partitions(case) if part.name == name]
        now = partition.largest_timestamp
    with opened(directory, now, clean=False):
        pass
    for checkpoint in CHECKPOINTS:
        if not (root / checkpoint).exists():
            (root / checkpoint).write_text(f"0\n1\n{directory.name.rpartition('-')[0]} 0 0\n")
    return directory, now


@contextlib.contextmanager
def opened(
    directory: Path, now: int, *, clean: bool, policy: str = "strict", read_only: bool = False
) -> Iterator[klog.Log]:
    log = klog.Log.open(
        directory, config=CONFIG, recovery=policy, clean_shutdown=clean, read_only=read_only, clock=ManualClock(now)
    )  # type: ignore[call-overload]
    try:
        yield log
    finally:
        log.close()


def aborted_in(data: klog.FetchData) -> list[tuple[int, ...]]:
    """The aborted transactions with records in a fetch. The list of the fetch may have later ones, too: an index entry
    is its bound."""
    end = max((batch.next_offset for batch in decode(data.memory())), default=0)
    return [entry[:3] for entry in data.aborted_transactions if entry.first_offset < end]


def results(log: klog.Log) -> dict[str, Any]:
    """Return everything that a user can query."""
    start, end = log.log_start_offset, log.log_end_offset
    records = [golden.record_tuple(record) for record in log.read(include_control=True, isolation="log_end")]
    times = sorted({record.timestamp for record in records})[:: max(1, len(records) // 20)]
    sample = range(start, end, max(1, (end - start) // 25))
    return {
        "bounds": (start, end),
        "records": records,
        "committed": [record.offset for record in log.read(isolation="read_committed")],
        "epochs": log.leader_epochs,
        "producers": golden.producer_tuples(log),
        "aborted": [entry[:3] for entry in log.aborted_transactions()],
        "aborted in fetches": [aborted_in(log.fetch(offset, 1000, isolation="read_committed")) for offset in sample],
        "count": log.count(),
        "times": [(time + more, log.offset_for_timestamp(time + more)) for time in (0, *times) for more in (0, 1)],
        "positions": [bytes(log.fetch(offset, 1).memory())[:20] for offset in sample],
        "segments": [(segment.base_offset, segment.size, segment.max_timestamp) for segment in log.segments],
    }


def damage(rng: random.Random, path: Path) -> str:
    """Damage a file as a disk, a crash or a user may do. Return a description of the damage."""
    data = path.read_bytes()
    kinds = ["deleted", "emptied", "cut", "garbage", "longer"]
    if data and (
        path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
        or (data.count(b"\n") > 3 and path.name != HIGH_WATERMARK)
    ):
        kinds += ["flipped"] * 4
    kind = rng.choice(kinds)
    if kind == "deleted":
        path.unlink()
        return kind
    if kind == "flipped":
        # in a text file, only the bytes after its first entry
        low = 0 if path.suffix else [at for at, byte in enumerate(data) if byte == 10][2] + 1
        at = rng.randrange(low, len(data))
        flips = [data[at] ^ 1 << bit for bit in range(8)]
        flipped = rng.choice([byte for byte in flips if path.suffix or not 48 <= byte < 58])  # no digit in a text file
        path.write_bytes(data[:at] + bytes((flipped,)) + data[at + 1 :])
        return f"flipped at {at}"
    new = {
        "emptied": b"",
        "cut": data[: rng.randrange(len(data))] if data else b"",
        "garbage": rng.randbytes(max(1, len(data))),
        "longer": data + rng.randbytes(rng.randrange(1, 40)),
    }[kind]
    path.write_bytes(new)
    return kind


def caches(directory: Path) -> list[Path]:
    suffixes = (".index", ".timeindex", ".txnindex", ".snapshot")
    found = [path for path in directory.iterdir() if path.suffix in suffixes]
    found.append(directory / "leader-epoch-checkpoint")
    return [*sorted(found), *(directory.parent / name for name in CHECKPOINTS if name != LOG_START)]


def check_results(directory: Path, now: int, damages: str, expected: dict[str, Any], **options: Any) -> None:
    with opened(directory, now, **options) as log:
        got = results(log)
    for name, value in expected.items():
        if name == "producers" and directory.name != "made-0":  # a rebuild restores expired producers too
            assert set(value) <= set(got[name]), f"{name} after {damages} with {options}"
            continue
        assert got[name] == value, f"{name} after {damages} with {options}"


class Sources:
    """Each log is prepared once: source → (directory, time, results without damage)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[object, tuple[Path, int, dict[str, Any]]] = {}

    def __getitem__(self, source: tuple[str, str] | int) -> tuple[Path, int, dict[str, Any]]:
        if source not in self._made:
            directory, now = prepared(self._root / str(len(self._made)), source)
            with opened(directory, now, clean=True) as log:
                self._made[source] = directory, now, results(log)
        return self._made[source]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tmp_path_factory.mktemp("caches"))


MODES = [
    {"clean": clean, "policy": policy, "read_only": read_only}
    for clean in (True, False)
    for policy in ("strict", "kafka")
    for read_only in (False, True)
]


@settings(max_examples=max(settings.default.max_examples // 4, 10))
@given(data=st.data())
def test_damage_to_caches_changes_no_result(
    sources: dict[object, tuple[Path, int, dict[str, Any]]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    source = data.draw(st.sampled_from([*GOLDEN, *range(6)]))
    mode = data.draw(st.sampled_from(MODES))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    share = data.draw(st.sampled_from([0.05, 0.3, 1.0]))
    directory, now, expected = sources[source]
    root = tmp_path_factory.mktemp("damaged") / "log.dir"
    shutil.copytree(directory.parent, root)
    copy, damages = root / directory.name, []
    for path in caches(copy):
        if rng.random() < share:
            damages.append(f"{path.name} {damage(rng, path)}")
    try:
        check_results(copy, now, f"{source}: {', '.join(damages)}", expected, **mode)
        if not mode["read_only"]:  # the files that it repaired are correct
            check_results(
                copy,
                now,
                f"{source}: {', '.join(damages)}, reopened",
                expected,
                clean=True,
                policy="strict",
                read_only=False,
            )
    finally:
        shutil.rmtree(root.parent)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(str(value) for value in mode.values()))
def test_deleting_all_files_of_a_kind_changes_no_result(
    sources: Sources, tmp_path: Path, suffix: str, mode: dict[str, Any]
) -> None:
    """Fault 12: every file of a kind is missing."""
    for number, source in enumerate([*GOLDEN[::3], 0, 3]):
        directory, now, expected = sources[source]
        root = Path(shutil.copytree(directory.parent, tmp_path / str(number)))
        for path in (root / directory.name).glob(f"*{suffix}"):
            path.unlink()
        check_results(root / directory.name, now, f"{source} without {suffix}", expected, **mode)


def test_an_unreadable_log_start_checkpoint_counts_as_missing(tmp_path: Path) -> None:
    """Fault 11: the log begins with its first segment, as before records were deleted."""
    directory, now = prepared(tmp_path / "log.dir", 1)
    end = end_of(directory, now)
    for text in (
        "",
        "0\n",
        "1\n1\nmade 0 5\n",
        "0\n99999999999999\nmade 0 5\n",
        "\0\xff",
        "0\n1\nmade 0",
    ):
        (directory.parent / LOG_START).write_text(text)
        with opened(directory, now, clean=False) as log:
            assert (log.log_start_offset, log.log_end_offset) == (0, end), text
    for text in ("0\n1\nmade 0 5\n", "0\n2\nmade 0 4\nmade 0 5"):  # Kafka reads both
        (directory.parent / LOG_START).write_text(text)
        with opened(directory, now, clean=False) as log:
            assert log.log_start_offset == 5, text


def end_of(directory: Path, now: int) -> int:
    with opened(directory, now, clean=True) as log:
        return log.log_end_offset
