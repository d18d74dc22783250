"""The directories of tests/golden: what Apache Kafka wrote, and what Kafka itself reads in them.

    case   := tests/golden/<name>/            manifest.json, logdir/, records/*.jsonl.gz     (README.md there)
    loader := tests/golden/loader.tar.xz      <name>/before/, config.json, verdict.json, …   (loader.md there)
    cleaner := tests/golden/cleaner.tar.xz    the same, of logs before and after a cleaning   (cleaner.md there)

Nothing here imports klog's inner modules: the comparison uses the public names of `Log`, so it holds for any engine
implementation. Tests work on copies; the repository's own files are never opened for writing.
"""

from __future__ import annotations

import base64
import collections
import functools
import gzip
import hashlib
import json
import lzma
import shutil
import tarfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.archives import unpack

HOME = Path(__file__).resolve().parent.parent / "golden"
LOADER_ARCHIVE = HOME / "loader.tar.xz"
CLEANER_ARCHIVE = HOME / "cleaner.tar.xz"

# Kafka used the .log's modification time as the largest timestamp of a segment that the cleaner had emptied. Git does
# not keep modification times, so these results cannot come from the files (README.md, "Time").
UNREPRODUCIBLE_QUERIES = {("internal", "__transaction_state-0"): {0, 1, 1700000000000, 1700000123456}}


class GoldenRecord(NamedTuple):
    """One line of a records file. `record_tuple` converts klog's `Record` to the same tuple."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    control_type: str | None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def golden_record(line: Mapping[str, Any]) -> GoldenRecord:
    """A line written by Kafka's own reader (see README.md, "records line")."""
    return GoldenRecord(
        line["o"],
        line["ts"],
        line["tt"],
        _bytes(line["k"]),
        _bytes(line["v"]),
        tuple((name, _bytes(value)) for name, value in line["h"]),
        line["le"],
        line["pid"],
        line["pe"],
        line["seq"],
        line["tx"],
        line["ctl"],
    )


_TIMESTAMP_TYPES = {0: "create", 1: "append", -1: "none"}


def record_tuple(record: Any) -> GoldenRecord:
    """The fields of klog's record."""
    return GoldenRecord(
        record.offset,
        record.timestamp,
        _TIMESTAMP_TYPES[int(record.timestamp_type)],
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
        record.leader_epoch,
        record.producer_id,
        record.producer_epoch,
        record.sequence,
        record.is_transactional,
        record.control_type,
    )


def read_records(path: Path) -> list[GoldenRecord]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [golden_record(json.loads(line)) for line in lines]


def read_codecs(path: Path) -> list[str]:
    """Codec of each record's batch, in the order of `read_records`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["codec"] for line in lines]


def file_tree(root: Path) -> dict[str, tuple[int, int, str]]:
    """Every name under `root` with its size, modification time and digest (directories: time only)."""
    tree = {}
    for path in sorted(root.rglob("*")):
        stat = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        tree[str(path.relative_to(root))] = (stat.st_size if path.is_file() else 0, stat.st_mtime_ns, digest)
    return tree


# ---------------------------------------------------------------------------------------------------- golden cases


@dataclass(frozen=True)
class Partition:
    """One entry of a manifest's `partitions`."""

    case: str
    entry: Mapping[str, Any]

    @property
    def topic(self) -> str:
        return str(self.entry["topic"])

    @property
    def number(self) -> int:
        return int(self.entry["partition"])

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def id(self) -> str:
        """Short enough for a test id; one golden topic has 249 characters."""
        return f"{self.case}/{self.name[:40]}"

    @property
    def directory(self) -> Path:
        return HOME / self.case / "logdir" / self.name

    @functools.cached_property
    def records(self) -> list[GoldenRecord]:
        name = self.entry["records_file"]
        return read_records(HOME / self.case / name) if name else []

    @functools.cached_property
    def codecs(self) -> list[str]:
        name = self.entry["records_file"]
        return read_codecs(HOME / self.case / name) if name else []

    @property
    def largest_timestamp(self) -> int:
        """The clock's time when the manifest's `producers` were read."""
        return max([segment["max_timestamp"] for segment in self.entry["segments"]], default=-1)

    @property
    def log_bytes_sha256(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.directory.glob("*.log")):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    @property
    def topic_id(self) -> str | None:
        path = self.directory / "partition.metadata"
        if not path.exists():
            return None
        lines = dict(line.split(": ", 1) for line in path.read_text().splitlines() if line)
        return lines["topic_id"]

    @property
    def loaded_leader_epochs(self) -> list[tuple[int, int]]:
        """The saved epochs after Kafka's load, which drops those that start at or above the log end."""
        end = self.entry["log_end_offset"]
        return [(epoch, start) for epoch, start in self.entry["leader_epochs"] if start < end]

    @property
    def klog_leader_epochs(self) -> list[tuple[int, int]]:
        """The epochs after klog's load, which keeps the last epoch of a log without records (docs/deviations.md)."""
        start, end = self.entry["log_start_offset"], self.entry["log_end_offset"]
        kept = [(epoch, at) for epoch, at in self.entry["leader_epochs"] if at == end and 0 < start == end]
        return self.loaded_leader_epochs + kept

    @property
    def timestamp_queries(self) -> list[tuple[int, tuple[int, int] | None]]:
        skip = UNREPRODUCIBLE_QUERIES.get((self.case, self.name), set())
        return [
            (query, None if answer is None else (answer[0], answer[1]))
            for query, answer in self.entry["timestamps"]
            if query not in skip
        ]


@functools.cache
def manifest(case: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads((HOME / case / "manifest.json").read_text())
    return loaded


@functools.cache
def partitions(case: str) -> tuple[Partition, ...]:
    return tuple(Partition(case, entry) for entry in manifest(case)["partitions"])


CASES: tuple[str, ...] = tuple(sorted(path.parent.name for path in HOME.glob("*/manifest.json")))


def all_partitions() -> list[Partition]:
    return [partition for case in CASES for partition in partitions(case)]


def most_frequent_key(case: str) -> tuple[bytes, int]:
    """The most frequent key among all that Kafka reads from a case's logs, and its number of records."""
    keys = collections.Counter(
        record.key
        for partition in partitions(case)
        for record in partition.records
        if record.offset >= partition.entry["log_start_offset"] and record.control_type is None
        if record.key is not None
    )
    key = max(keys, key=lambda each: (keys[each], each))
    return key, keys[key]


def copy_logdir(case: str, into: Path) -> Path:
    """A private copy of a case's log.dir, modification times included."""
    return Path(shutil.copytree(HOME / case / "logdir", into / case, copy_function=shutil.copy2))


# ---------------------------------------------------------------------------------------------------- comparison


class Differences:
    """Collects every field that differs, so that one run reports all."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.found: list[str] = []

    def equal(self, field: str, got: Any, expected: Any) -> None:
        if got != expected:
            self.found.append(f"{field}: got {_short(got)}, expected {_short(expected)}")

    def equal_lists(self, field: str, got: Iterable[Any], expected: Iterable[Any]) -> None:
        """Like `equal`, but shows the first item that differs."""
        got, expected = list(got), list(expected)
        for index, (mine, theirs) in enumerate(zip(got, expected, strict=False)):
            if mine != theirs:
                self.found.append(f"{field}[{index}]: got {_short(mine)}, expected {_short(theirs)}")
                break
        if len(got) != len(expected):
            self.found.append(f"{field}: got {len(got)} items, expected {len(expected)}")

    def attempt(self, field: str, action: Callable[[], None]) -> None:
        """Run one comparison; an exception is a difference too."""
        try:
            action()
        except Exception as error:
            self.found.append(f"{field}: raised {type(error).__name__}: {error}")

    def report(self) -> None:
        if self.found:
            raise AssertionError("\n  ".join([f"{self.where}: {len(self.found)} differences", *self.found]))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"


def topic_id_text(topic_id: Any) -> str | None:
    """Kafka's text of an id (URL-safe base64, 22 characters), from klog's text or UUID."""
    if isinstance(topic_id, uuid.UUID):
        return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return None if topic_id is None else str(topic_id)


def producer_tuples(log: Any) -> list[tuple[int, int, int, int, int | None, int]]:
    return [
        (
            producer_id,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            state.current_txn_first_offset,
            state.coordinator_epoch,
        )
        for producer_id, state in sorted(log.producers.items())
    ]


def expected_producers(entries: Iterable[Mapping[str, Any]]) -> list[tuple[int, int, int, int, int | None, int]]:
    return [
        (
            entry["producer_id"],
            entry["epoch"],
            entry["last_sequence"],
            entry["last_offset"],
            entry["current_txn_first_offset"],
            entry["coordinator_epoch"],
        )
        for entry in sorted(entries, key=lambda entry: int(entry["producer_id"]))
    ]


def expected_aborted(entries: Iterable[Mapping[str, Any]], start: int, stop: int) -> list[tuple[int, int, int, int]]:
    """The transaction index entries that overlap [start, stop), in the order of their markers."""
    return [
        (entry["producer_id"], entry["first_offset"], entry["last_offset"], entry["last_stable_offset"])
        for entry in entries
        if entry["last_offset"] >= start and entry["first_offset"] < stop
    ]


def compare_log(log: Any, partition: Partition, *, view: str = "loaded", with_producers: bool = True) -> None:
    """Compare a partition's manifest with klog's public view of it.

    view: "saved" (read-only: the epoch file as it is), "loaded" (epochs that begin at the log end are dropped, as
    Kafka's loader does), "reloaded" (a second load, after klog's own close).
    """
    entry = partition.entry
    differences = Differences(partition.id)
    start, end = entry["log_start_offset"], entry["log_end_offset"]
    equal, attempt = differences.equal, differences.attempt

    def segments() -> None:
        differences.equal_lists(
            "segments",
            [(segment.base_offset, segment.size, segment.max_timestamp) for segment in log.segments],
            [(item["base_offset"], item["size"], item["max_timestamp"]) for item in entry["segments"]],
        )
        bases = [item["base_offset"] for item in entry["segments"]]
        got_ends = [segment.next_offset for segment in log.segments]
        equal("last segment's next_offset", got_ends[-1], max(end, bases[-1]))
        digest = hashlib.sha256()
        for segment in log.segments:
            digest.update(Path(segment.path).read_bytes())
        equal("bytes of .log files", digest.hexdigest(), entry["batches_sha256"])

    def offsets() -> None:
        equal("log_start_offset", log.log_start_offset, start)
        equal("log_end_offset", log.log_end_offset, end)
        if entry["high_watermark"] is not None:
            equal("high_watermark", log.high_watermark, entry["high_watermark"])
            equal("last_stable_offset", log.last_stable_offset, entry["last_stable_offset"])
        equal("size", log.size, sum(item["size"] for item in entry["segments"]))

    def beside() -> None:
        epochs = {
            "saved": [tuple(item) for item in entry["leader_epochs"]],
            "loaded": partition.klog_leader_epochs,
            "reloaded": partition.klog_leader_epochs,
        }[view]
        equal("leader_epochs", [tuple(item) for item in log.leader_epochs], epochs)
        got = [tuple(item) for item in log.aborted_transactions(start, end)]
        equal("aborted", got, expected_aborted(entry["aborted"], start, end))
        equal("topic_id", topic_id_text(log.topic_id), partition.topic_id)
        if with_producers:
            equal("producers", producer_tuples(log), expected_producers(entry["producers"]))

    def records() -> None:
        expected = [record for record in partition.records if record.offset >= start]
        got = [record_tuple(record) for record in log.read(include_control=True, isolation="log_end")]
        differences.equal_lists("records", got, expected)
        data = [record for record in expected if record.control_type is None]
        got = [record_tuple(record) for record in log.read(isolation="log_end")]
        differences.equal_lists("records without control", got, data)

    def batches() -> None:
        expected = [
            (record.offset, codec)
            for record, codec in zip(partition.records, partition.codecs, strict=True)
            if record.offset >= start
        ]
        got = []
        for batch in log.read(include_control=True, isolation="log_end").batches():
            got += [(record.offset, batch.compression) for record in batch if record.offset >= start]
        differences.equal_lists("codecs", [(offset, _codec_name(codec)) for offset, codec in got], expected)

    def committed() -> None:
        if entry["read_committed"] is None:
            return
        data = [record.offset for record in partition.records if record.offset >= start]
        got = [record.offset for record in log.read(isolation="read_committed")]
        expected = [offset for first, last in entry["read_committed"] for offset in data if first <= offset <= last]
        differences.equal_lists("read_committed", got, expected)

    def counts() -> None:
        expected = [record for record in partition.records if record.offset >= start and record.control_type is None]
        equal("count()", log.count(), len(expected))

    def timestamps() -> None:
        got = []
        for query, _ in partition.timestamp_queries:
            answer = log.offset_for_timestamp(query)
            got.append((query, None if answer is None else (answer.timestamp, answer.offset)))
        differences.equal_lists("offset_for_timestamp", got, partition.timestamp_queries)

    for step in (segments, offsets, beside, records, batches, committed, counts, timestamps):
        attempt(step.__name__, step)
    differences.report()


def _codec_name(codec: Any) -> str:
    return "none" if codec is None else str(codec)


# ---------------------------------------------------------------------------------------------------- loader cases


@dataclass(frozen=True)
class LoaderCase:
    """A directory with (at most) one thing wrong, the input of Kafka's loader, and its outcome."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @functools.cached_property
    def config(self) -> Mapping[str, Any]:
        loaded: Mapping[str, Any] = json.loads((self.root / "config.json").read_text())
        return loaded

    @functools.cached_property
    def verdict(self) -> Mapping[str, Any]:
        loaded: Mapping[str, Any] = json.loads((self.root / "verdict.json").read_text())
        return loaded

    @functools.cached_property
    def lookup(self) -> Mapping[str, Any]:
        loaded: Mapping[str, Any] = json.loads((self.root / "lookup.json").read_text())
        return loaded

    @functools.cached_property
    def records(self) -> list[GoldenRecord]:
        path = self.root / "records.jsonl.gz"
        return read_records(path) if path.exists() else []

    def copy(self, into: Path) -> Path:
        """A private copy of the partition directory, in a log.dir without clean-shutdown file and checkpoints."""
        (directory,) = (self.root / "before").iterdir()
        return Path(shutil.copytree(directory, into / directory.name))


def loader_names(archive_path: Path = LOADER_ARCHIVE) -> list[str]:
    """Names of the cases, from the archive's table only (unpacking waits for the first test that needs it)."""
    with lzma.open(archive_path) as stream, tarfile.open(fileobj=stream) as archive:
        return sorted({member.name.split("/", 1)[0] for member in archive})


def unpack_loader_cases(into: Path, archive_path: Path = LOADER_ARCHIVE) -> dict[str, LoaderCase]:
    with tarfile.open(archive_path, "r:xz") as archive:
        unpack(archive, into)
    return {path.name: LoaderCase(path) for path in sorted(into.iterdir())}


def cleaner_names() -> list[str]:
    """Names of the cleaner's cases."""
    return [*loader_names(CLEANER_ARCHIVE), "legacy-v1"]


def unpack_cleaner_cases(into: Path) -> dict[str, LoaderCase]:
    """The cleaner's cases by name; cleaner.md describes config and verdict."""
    shutil.copytree(HOME / "cleaner" / "legacy-v1", into / "legacy-v1")
    return unpack_loader_cases(into, CLEANER_ARCHIVE)
