"""klog beside Kafka's own classes in one warm JVM: encode, decode, validate, in memory.

Both sides work on the same bytes, a fetch of about one MiB, REPEATS times in a run. The fetch consists of batches of
16 KiB, the size that Kafka's producer sends, and stays in the caches, like data that was just received or read. These
contests compare the work, not the memory, which is the same for both (the other contests cycle through sources that do
not fit into a cache). The JVM measures its own time (kafka_loop.py).

    encode      columns or arrays into batches; klog from Arrow, Kafka by MemoryRecordsBuilder into one buffer
    decode      the checksum, and key and value of every record: klog as columns and as records, Kafka as arrays
    validate    a leader's validation of client batches, one batch in each request: the checksum and every field are
                checked, compressed batches are decompressed, offsets are assigned
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import lz4.frame
import pyarrow as pa

from bench.contest import Contest, Contestant, Factory
from bench.kafka_loop import KafkaLoop
from bench.workloads import FIRST_TIMESTAMP, Source, Workload, arrow_table, memcpy, workload
from klog import LogConfig, record

_BATCH_BYTES = 16_384
_HEADER_BYTES = 61
_LEADER_EPOCH_ENDS = 16
REPEATS = 24
_NOW = FIRST_TIMESTAMP + 3_600_000


def _batches(table: pa.RecordBatch, compression: str | None = None) -> record.BatchGroup:
    """Encode the batches of one fetch into pooled memory."""
    made = record.Encoder(
        table,
        compression=compression,
        batch_bytes_max=_BATCH_BYTES,
        message_bytes_max=1 << 20,
        timestamp_default=0,
        timestamp_min=0,
        timestamp_max=1 << 62,
    ).next_group(1 << 30)
    assert made is not None
    return made


def _fetches(load: Workload, compression: str | None = None) -> list[bytes]:
    group = _batches(arrow_table(load.tuples()), compression)
    group.assign(0, -1)
    return [bytes(group)]


def _all(work: Callable[[Source], object], sources: Sequence[Source]) -> Callable[[], object]:
    """Return a run(): the work on each of the sources, REPEATS times."""

    def run() -> None:
        for _ in range(REPEATS):
            for source in sources:
                work(source)

    return run


def _read(fetch: bytes) -> None:
    for r in record.iter_records(fetch):
        r.key  # noqa: B018
        r.value  # noqa: B018


def _pairs(fetch: bytes) -> None:
    for _key, _value in record.pairs(fetch):
        pass


def _iterate(fetch: bytes) -> None:
    for _ in record.iter_records(fetch, lazy=True):
        pass


class _Race:
    """The common parts of one workload's contests: the fetches, the JVM over them, and a copy for the limit."""

    def __init__(self, load: Workload, folder: Path, compression: str | None = None) -> None:
        self.load = load
        self.fetches = _fetches(load, compression)
        self.kafka = KafkaLoop(self.fetches, folder, REPEATS)

    def contest(
        self,
        name: str,
        contestants: tuple[Contestant, ...],
        check: Callable[[], None],
        limit: Contestant | None = None,
    ) -> Contest:
        return self.kafka.contest(
            f"kafka {name}",
            REPEATS * self.load.count,
            REPEATS * self.load.bytes,
            contestants,
            check,
            limit=limit or Contestant("memcpy", _all(memcpy(len(self.fetches[0])), self.fetches)),
        )


def _encode(load: Workload, folder: Path, *, goal: float | None = None) -> Contest:
    race = _Race(load, folder)
    tables = [arrow_table(load.tuples())]

    def check() -> None:
        answer = race.kafka.warm_up("encode")
        assert answer.records == REPEATS * load.count
        assert race.kafka.encoded() == b"".join(race.fetches), "the same records make the same bytes"
        for table in tables:
            made = _batches(table)
            made.assign(0, -1)
            assert bytes(made) == race.fetches[0]

    contestants = (
        Contestant("klog columns (Arrow) -> group", _all(_batches, tables), goal=goal),
        race.kafka.contestant("MemoryRecordsBuilder", "encode"),
    )
    return race.contest(f"encode {load.name}", contestants, check)


def _decode(load: Workload, folder: Path, *, goals: tuple[float | None, ...] = (None, None, None, None)) -> Contest:
    race = _Race(load, folder)

    def check() -> None:
        answer = race.kafka.warm_up("decode")
        assert (answer.records, answer.bytes) == (REPEATS * load.count, REPEATS * load.bytes)
        expected = [(key, value) for key, value, _ in load.tuples()]
        columns = pa.record_batch(record.columns(race.fetches[0], fields=["key", "value"])).to_pydict()
        assert list(zip(columns["key"], columns["value"], strict=True)) == expected
        assert [(r.key, r.value) for r in record.iter_records(race.fetches[0])] == expected
        assert list(record.pairs(race.fetches[0])) == expected

    contestants = (
        Contestant("klog.record.columns (Arrow)", _all(record.columns, race.fetches), goal=goals[0]),
        Contestant("klog records, key and value read", _all(_read, race.fetches), goal=goals[1]),
        Contestant("klog pairs (key, value)", _all(_pairs, race.fetches), goal=goals[2]),
        Contestant("klog lazy records, none read", _all(_iterate, race.fetches), goal=goals[3]),
        race.kafka.contestant("records -> byte[]", "decode"),
    )
    return race.contest(f"decode {load.name}", contestants, check)


def _validate(load: Workload, folder: Path, *, goal: float | None = None) -> Contest:
    race = _Race(load, folder)
    return race.contest(f"validate {load.name}", *_validating(race, goal))


def _validate_lz4(load: Workload, folder: Path, *, goal: float | None = None) -> Contest:
    """Validate lz4 batches; the limit is the decompressing library."""
    race = _Race(load, folder, "lz4")
    payloads = [request[_HEADER_BYTES:] for request in _requests(race.fetches)]
    return race.contest(
        f"validate lz4 {load.name}",
        *_validating(race, goal),
        Contestant("lz4 alone", _all(lz4.frame.decompress, payloads)),
    )


def _validating(race: _Race, goal: float | None) -> tuple[tuple[Contestant, ...], Callable[[], None]]:
    requests, config = _requests(race.fetches), LogConfig()

    def validate(request: bytes) -> record.ValidatedBatch:
        return record.validate_append(request, config, offset=0, now=_NOW)

    def check() -> None:
        answer = race.kafka.warm_up("validate")
        assert answer.records == REPEATS * race.load.count
        made = [validate(request) for request in requests]
        assert [bytes(batch)[_LEADER_EPOCH_ENDS:] for batch in made] == [each[_LEADER_EPOCH_ENDS:] for each in requests]
        assert answer.records == REPEATS * sum(batch.count for batch in made)
        assert answer.bytes == REPEATS * sum(map(len, requests)), "nothing was compressed again"
        assert record.validate(race.fetches[0]) == race.load.count

    contestants = (
        Contestant("klog.record.validate_append", _all(validate, requests), goal=goal),
        Contestant("klog.record.validate", _all(record.validate, race.fetches)),
        race.kafka.contestant("LogValidator", "validate"),
    )
    return contestants, check


def _requests(fetches: Sequence[bytes]) -> list[bytes]:
    """Return each batch alone and with base offset 0, as clients send them."""
    return [bytes(8) + bytes(batch.raw[8:]) for fetch in fetches for batch in record.decode(fetch)]


FACTORIES: dict[str, Factory] = {
    "kafka encode 100B": lambda tiny, folder: _encode(workload("100B", tiny=tiny), folder, goal=4),
    "kafka encode 1KiB": lambda tiny, folder: _encode(workload("1KiB", tiny=tiny), folder),
    "kafka decode 100B": lambda tiny, folder: _decode(workload("100B", tiny=tiny), folder, goals=(4, 1, 1.3, 1.7)),
    "kafka decode 1KiB": lambda tiny, folder: _decode(workload("1KiB", tiny=tiny), folder),
    "kafka validate 100B": lambda tiny, folder: _validate(workload("100B", tiny=tiny), folder, goal=5),
    "kafka validate 1KiB": lambda tiny, folder: _validate(workload("1KiB", tiny=tiny), folder),
    "kafka validate lz4 100B": lambda tiny, folder: _validate_lz4(workload("100B", tiny=tiny), folder, goal=5),
    "kafka validate lz4 1KiB": lambda tiny, folder: _validate_lz4(workload("1KiB", tiny=tiny), folder),
}
