"""Every topic-level property: type, default, bounds, the broker keys that set its default, and its meaning in one line.

The table is data, like the one of broker keys in broker_table.py. model.py makes objects of both, and
docs/configuration.md lists them. Kafka: LogConfig.CONFIG, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from klog.arguments import INT_MAX, LONG_MAX, LONG_MIN
from klog.values import dataclass, replace

HOURS, MINUTES = 3_600_000, 60_000


SEGMENT_BYTES_KAFKA = 1 << 20  # Kafka 4.0 rejects a smaller segment.bytes


@dataclass(frozen=True, slots=True)
class Key:
    """One property. synonyms: broker keys that set its default, strongest first, each with a factor to this unit.
    dynamic: whether it may change while the directory is open; "half..double": at most by that factor at a time.
    secret: its value is never shown."""

    name: str
    type: str  # int, long, double, bool, list, string
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, int], ...] = ()
    check: Callable[[Any], bool] | None = None
    dynamic: Literal["no", "yes", "half..double"] = "no"
    secret: bool = False

    @property
    def field(self) -> str:
        """Its name in Python: dots become underscores."""
        return self.name.replace(".", "_")


def _int(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, synonym: str = "") -> Key:
    return Key(name, "int", default, doc, low, high, synonyms=((synonym, 1),) if synonym else ())


def _long(name: str, default: int, doc: str, low: int = LONG_MIN, synonyms: tuple[tuple[str, int], ...] = ()) -> Key:
    return Key(name, "long", default, doc, low, LONG_MAX, synonyms=synonyms)


def _one(*names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, 1) for name in names)


TOPIC_KEYS: dict[str, Key] = {
    key.name: key
    for key in (
        _int("segment.bytes", 1 << 30, "largest size of a .log file, bytes", 14, synonym="log.segment.bytes"),
        _long(
            "segment.ms",
            604_800_000,
            "age at which a segment rolls, ms",
            1,
            (("log.roll.ms", 1), ("log.roll.hours", HOURS)),
        ),
        _long(
            "segment.jitter.ms",
            0,
            "largest random reduction of segment.ms, ms",
            0,
            (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOURS)),
        ),
        _int("segment.index.bytes", 10_485_760, "size of an index file, bytes", 4, synonym="log.index.size.max.bytes"),
        _int("index.interval.bytes", 4096, "log bytes between index entries", synonym="log.index.interval.bytes"),
        _long("flush.messages", LONG_MAX, "fsync after this many records", 1, _one("log.flush.interval.messages")),
        _long(
            "flush.ms",
            LONG_MAX,
            "fsync after this long, ms",
            0,
            _one("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        ),
        _long(
            "retention.bytes",
            -1,
            "size above which old segments are deleted, bytes; -1: never",
            synonyms=_one("log.retention.bytes"),
        ),
        _long(
            "retention.ms",
            604_800_000,
            "age above which old segments are deleted, ms; -1: never",
            -1,
            (("log.retention.ms", 1), ("log.retention.minutes", MINUTES), ("log.retention.hours", HOURS)),
        ),
        _long(
            "local.retention.bytes",
            -2,
            "retention.bytes for local copies of tiered logs; -2: the same",
            -2,
            _one("log.local.retention.bytes"),
        ),
        _long(
            "local.retention.ms",
            -2,
            "retention.ms for local copies of tiered logs; -2: the same",
            -2,
            _one("log.local.retention.ms"),
        ),
        _int(
            "max.message.bytes",
            1_048_588,
            "largest batch, bytes, including its 12-byte prefix",
            synonym="message.max.bytes",
        ),
        Key(
            "cleanup.policy",
            "list",
            ("delete",),
            "delete, compact, both, or neither (keep all records)",
            choices=("delete", "compact"),
            synonyms=_one("log.cleanup.policy"),
        ),
        _long(
            "delete.retention.ms",
            86_400_000,
            "how long tombstones are kept, ms",
            0,
            _one("log.cleaner.delete.retention.ms"),
        ),
        _long(
            "min.compaction.lag.ms",
            0,
            "minimum age of records that are compacted, ms",
            0,
            _one("log.cleaner.min.compaction.lag.ms"),
        ),
        _long(
            "max.compaction.lag.ms",
            LONG_MAX,
            "maximum age of records that are not compacted, ms",
            1,
            _one("log.cleaner.max.compaction.lag.ms"),
        ),
        Key(
            "min.cleanable.dirty.ratio",
            "double",
            0.5,
            "dirty ratio above which cleaning begins",
            0,
            1,
            synonyms=_one("log.cleaner.min.cleanable.ratio"),
        ),
        _long(
            "file.delete.delay.ms",
            60_000,
            "time between renaming to .deleted and unlinking, ms",
            0,
            _one("log.segment.delete.delay.ms"),
        ),
        Key(
            "compression.type",
            "string",
            "producer",
            "codec of stored batches; producer: as received",
            choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            synonyms=_one("compression.type"),
        ),
        Key(
            "compression.gzip.level",
            "int",
            -1,
            "1 to 9, or -1",
            -1,
            9,
            synonyms=_one("compression.gzip.level"),
            check=bool,
        ),
        Key(
            "compression.lz4.level",
            "int",
            9,
            "1 to 17; 9 is the fast compressor",
            1,
            17,
            synonyms=_one("compression.lz4.level"),
        ),
        Key("compression.zstd.level", "int", 3, "-131072 to 22", -131_072, 22, synonyms=_one("compression.zstd.level")),
        Key(
            "preallocate",
            "bool",
            False,
            "allocate a new segment's full size at once",
            synonyms=_one("log.preallocate"),
        ),
        Key(
            "message.timestamp.type",
            "string",
            "CreateTime",
            "timestamp of a record: the producer's, or the time of the append",
            choices=("CreateTime", "LogAppendTime"),
            synonyms=_one("log.message.timestamp.type"),
        ),
        _long(
            "message.timestamp.before.max.ms",
            LONG_MAX,
            "oldest record time accepted, ms before now",
            0,
            _one("log.message.timestamp.before.max.ms"),
        ),
        _long(
            "message.timestamp.after.max.ms",
            3_600_000,
            "newest record time accepted, ms after now",
            0,
            _one("log.message.timestamp.after.max.ms"),
        ),
        _int("min.insync.replicas", 1, "replicas that acks=all waits for", 1, synonym="min.insync.replicas"),
        Key(
            "unclean.leader.election.enable",
            "bool",
            False,
            "whether an out-of-sync replica may become leader",
            synonyms=_one("unclean.leader.election.enable"),
        ),
        Key("remote.storage.enable", "bool", False, "tiered storage"),
        Key("remote.log.copy.disable", "bool", False, "tiered storage, only for reads"),
        Key("remote.log.delete.on.disable", "bool", False, "delete tiered data when tiering is switched off"),
        Key("leader.replication.throttled.replicas", "list", (), "replicas whose sending is throttled"),
        Key("follower.replication.throttled.replicas", "list", (), "replicas whose fetching is throttled"),
        Key(
            "internal.segment.bytes",
            "int",
            None,
            "segment.bytes without its lower bound; takes precedence",
            14,
            INT_MAX,
        ),
        # klog's own keys; IoPolicy describes those of klog.io.
        _long("klog.flush.bytes", 0, "flush when this many bytes are not on disk; 0: never because of bytes", 0),
        Key(
            "klog.io.write",
            "string",
            "buffered",
            "through the page cache, or around it; from the next segment on",
            choices=("buffered", "dontcache", "direct"),
        ),
        _long("klog.io.write.behind.bytes", 0, "pages this far before the log end leave the page cache; 0: never", 0),
        Key(
            "klog.io.preallocate",
            "string",
            "steps",
            "allocation ahead of the log end: in steps, as written zeros, or none",
            choices=("steps", "none", "zeros"),
        ),
        _int("klog.io.preallocate.step.bytes", 16 << 20, "largest step; the first is 64 KiB, and each doubles", 4096),
        Key(
            "klog.io.read",
            "string",
            "buffered",
            "reads of ranges: through the page cache, or around it (O_DIRECT)",
            choices=("buffered", "direct"),
        ),
        _int(
            "klog.io.read.ahead.bytes",
            0,
            "largest read-ahead window for sequential readers; 0: only the kernel's own",
        ),
        _long("klog.io.read.cache.bytes", 0, "cache of a log for direct reads and decompressed batches; 0: none", 0),
        _long("klog.io.read.cache.ms", 300_000, "how long that cache keeps its entries, ms", 1),
        _long("klog.io.warm.up.bytes", 0, "newest bytes of a log to read when it is opened; 0: none", 0),
        _long("klog.io.warm.up.ms", 1000, "how long that may delay the opening, ms", 0),
        Key(
            "klog.io.scan.drop.behind",
            "bool",
            True,
            "recovery, Spark and other scans drop the pages that they have loaded into the page cache",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that sets the default of a topic key. factor: to the topic key's unit; rank: 0 wins over 1.

    key: its own name, with the bounds of the topic key; hours and minutes are 32-bit numbers.
    """

    topic_key: str
    factor: int
    rank: int
    key: Key


def _synonyms() -> dict[str, Synonym]:
    found = {}
    for key in TOPIC_KEYS.values():
        for rank, (name, factor) in enumerate(key.synonyms):
            bounds: dict[str, Any] = {"type": "int", "high": INT_MAX} if factor != 1 else {}
            dynamic: Literal["no", "yes"] = "no" if factor != 1 or name.endswith(".scheduler.interval.ms") else "yes"
            own = replace(key, name=name, synonyms=(), dynamic=dynamic, **bounds)
            found[name] = Synonym(key.name, factor, rank, own)
    return found


SYNONYMS: dict[str, Synonym] = _synonyms()
"""Broker key -> the topic key whose default it sets."""

_INSTEAD = "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
REMOVED: dict[str, str] = {
    "message.format.version": "batches have format 2",
    "log.message.format.version": "batches have format 2",
    "inter.broker.protocol.version": "it is part of the cluster's metadata",
    "message.downconversion.enable": "readers must support format 2",
    "log.message.downconversion.enable": "readers must support format 2",
    "message.timestamp.difference.max.ms": _INSTEAD,
    "log.message.timestamp.difference.max.ms": _INSTEAD,
}
"""Keys without a meaning since Kafka 4.0, and what replaces them. If one is given, a warning is logged."""
