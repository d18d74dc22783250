"""What a materialized table holds: its Parquet files and the offsets that they cover. Pure.

  <target>/_klog/manifest.json :=
      {"version": 1, "number": 12, "topic": "flights", "topicId": "<id>" | null, "latest": false,
       "options": {"columns": "key,offset"}, "schema": <Spark's JSON of a StructType>,
       "partitions": {"0": {"start": 0, "end": 266, "leaderEpoch": 3 | null, "bits": 0}, ...},
       "files": [{"name": "<unique>", "partition": 0, "slot": 0, "start": 0, "end": 266, "rows": 260, "size": 9000,
                  "bits": 0, "bucket": 0}, ...],
       "kept": ["<unique>", ...]}

T1  The table holds the records of offsets [start, end) of each partition: with latest=false each of them once, with
    latest=true the latest of each key, unless it is a tombstone.
T2  latest=false: the files of a partition are in the order of their slots, which is that of their offsets. A file
    that is replaced by one with more rows passes its slot on.
T3  latest=true: a key is in the one file whose `bucket` is the low `bits` bits of its hash. Buckets do not overlap;
    a bucket of the partition's own `bits` that has no file yet is empty.
T4  `kept` are files of the manifest before, which the next commit removes: a reader has time to finish.
T5  The options that shape rows, and so the schema, stay the same for the life of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from klog.errors import CorruptData
from klog.log.directory import versioned
from klog.values import asdict, dataclass, field

VERSION = 1
BITS_MAX = 16


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file. name: below _klog/files, never used twice. slot: number of its name in the target."""

    name: str
    partition: int
    slot: int
    start: int
    end: int
    rows: int
    size: int
    bits: int = 0
    bucket: int = 0

    @property
    def shown(self) -> str:
        """Its name in the target: another one than that of the file whose slot it takes."""
        return f"{self.place}-{self.name[:12]}.parquet"

    @property
    def place(self) -> str:
        """How the names in the target of all files of its slot begin."""
        return f"klog-{self.partition}-{self.slot:06d}"


@dataclass(frozen=True, slots=True)
class Extract:
    """What the table has of a partition: offsets [start, end). leader_epoch: of the last one, None if unknown."""

    start: int
    end: int
    leader_epoch: int | None = None
    bits: int = 0


@dataclass(frozen=True)
class Manifest:
    """One commit of a table."""

    number: int
    topic: str
    topic_id: str | None
    latest: bool
    options: Mapping[str, str]
    schema: Any
    partitions: Mapping[int, Extract] = field(default_factory=dict)
    files: tuple[DataFile, ...] = ()
    kept: tuple[str, ...] = ()

    def of(self, partition: int) -> list[DataFile]:
        """The files of a partition, in the order of their slots."""
        return sorted((file for file in self.files if file.partition == partition), key=lambda file: file.slot)


def in_slots(made: Iterable[DataFile], taken: Iterable[DataFile]) -> list[DataFile]:
    """Give files without a slot (-1) the next free one of their partition, in order."""
    last: dict[int, int] = {}
    made, found = list(made), []
    for file in (*taken, *made):
        last[file.partition] = max(last.get(file.partition, -1), file.slot)
    for file in made:
        if file.slot < 0:
            last[file.partition] += 1
            file = DataFile(**{**asdict(file), "slot": last[file.partition]})
        found.append(file)
    return found


def to_bytes(manifest: Manifest) -> bytes:
    """Return the content of manifest.json."""
    document = {
        "version": VERSION,
        "number": manifest.number,
        "topic": manifest.topic,
        "topicId": manifest.topic_id,
        "latest": manifest.latest,
        "options": dict(manifest.options),
        "schema": manifest.schema,
        "partitions": {
            str(number): {"start": each.start, "end": each.end, "leaderEpoch": each.leader_epoch, "bits": each.bits}
            for number, each in sorted(manifest.partitions.items())
        },
        "files": [asdict(file) for file in sorted(manifest.files, key=lambda file: (file.partition, file.slot))],
        "kept": list(manifest.kept),
    }
    return versioned.encode(document)


def from_bytes(data: bytes, path: str) -> Manifest:
    """Parse manifest.json. Raises NewerFormat, and CorruptData if it is not valid."""
    try:
        document: Any = versioned.parse(data, path, VERSION)
        found = Manifest(
            int(document["number"]),
            document["topic"],
            document["topicId"],
            bool(document["latest"]),
            dict(document["options"]),
            document["schema"],
            {
                int(number): Extract(each["start"], each["end"], each["leaderEpoch"], each["bits"])
                for number, each in document["partitions"].items()
            },
            tuple(DataFile(**file) for file in document["files"]),
            tuple(document["kept"]),
        )
        _check(found)
    except versioned.MALFORMED as error:
        raise CorruptData(
            f"not a manifest of klog.spark.materialize ({type(error).__name__}: {error}); materialize the topic into "
            f"another directory",
            path=path,
        ) from None
    return found


def _check(found: Manifest) -> None:
    """Raise ValueError for values that no call writes: what reads a manifest counts and shifts by them."""
    whole: list[Any] = [number for each in found.partitions.values() for number in (each.start, each.end)]
    whole += [epoch for each in found.partitions.values() if (epoch := each.leader_epoch) is not None]
    for file in found.files:
        whole += [file.partition, file.slot, file.start, file.end, file.rows, file.size, file.bucket]
    bits: list[Any] = [*(each.bits for each in found.partitions.values()), *(file.bits for file in found.files)]
    in_range = all(type(number) is int and 0 <= number < 1 << 63 for number in (*whole, *bits))
    if not in_range or max(bits, default=0) > BITS_MAX:
        raise ValueError("a number is out of range")
    names: list[Any] = [*(file.name for file in found.files), *found.kept, found.topic]
    if not all(type(name) is str and name and "/" not in name for name in names) or not isinstance(found.schema, dict):
        raise ValueError("a name or the schema is none")
