"""The origin of records: topic and partition as attributes of a record, and as Arrow columns."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars
import pyarrow as pa
import pytest

import klog
from klog.record import FIELDS, ORIGIN_FIELDS, Record

ROWS = [(b"k", b"%d" % number, 5) for number in range(4)]
SPANNING = [*FIELDS, *ORIGIN_FIELDS]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    """A topic of three partitions, one of them empty, and a topic of one."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("many", partitions=3)
        logs.create_topic("one")
        for log in (logs.log("many", 0), logs.log("many", 2), logs.log("one")):
            log.append(ROWS[:2])
            log.append(ROWS[2:], compression="zstd")
        yield logs


def origins(records: Iterable[Record]) -> list[tuple[str | None, int | None]]:
    return [(record.topic, record.partition) for record in records]


def test_records_of_every_reader_have_topic_and_partition(logs: klog.LogManager) -> None:
    of_many = [("many", 0)] * 4 + [("many", 2)] * 4
    assert origins(logs.read("many")) == origins(logs.reader("many", "r")) == of_many
    assert origins(logs.reader("many", "s").tail(timeout=0)) == of_many
    assert (
        origins(logs.read("many", partition=2))
        == origins(record for b in logs.read("many", partition=2).batches() for record in b)
        == of_many[4:]
    )
    log = logs.log("many", 2)

    async def tailed() -> list[Record]:
        return [record async for record in log.tail(0, timeout=0)]

    with log.snapshot() as snapshot, klog.Log.open(log.path, read_only=True) as reader:
        readers = (log.read(), log.tail(0, timeout=0), asyncio.run(tailed()), snapshot.read(), reader.read())
        for records in readers:
            assert origins(records) == of_many[4:]
    assert origins(pickle.loads(pickle.dumps(list(logs.read("many"))))) == of_many
    assert list(logs.read("many", partition=0)) != list(logs.read("many", partition=2))


def test_arrow_of_several_partitions_has_them_after_the_other_columns(logs: klog.LogManager) -> None:
    table = logs.read("many").to_arrow()
    assert table.schema.names == SPANNING
    assert [table.schema.field(name).type for name in ORIGIN_FIELDS] == [pa.string(), pa.int32()]
    assert table.select(ORIGIN_FIELDS).to_pylist() == [
        {"topic": "many", "partition": number} for number in (0, 0, 0, 0, 2, 2, 2, 2)
    ]
    assert logs.read("many", "latest").to_arrow().schema == table.schema  # no record
    assert pa.table(logs.reader("many", "r")) == logs.reader("many", "s").to_arrow() == table
    assert logs.read("many").to_polars().equals(polars.DataFrame(table))
    assert logs.read("many").between(0, 2).to_arrow().schema == table.schema
    for alone in (logs.read("many", partition=0), logs.read("one"), logs.log("many").read(), logs.reader("one", "r")):
        assert alone.to_arrow().schema.names == list(FIELDS)


def test_named_columns_in_their_order(logs: klog.LogManager) -> None:
    names = ["partition", "value", "leader_epoch", "topic"]
    for reader in (
        logs.read("many", {0: 3, 2: 3}, columns=names),
        logs.log("many").read(3, columns=tuple(names)).between(0, 9),
    ):
        table = reader.to_arrow()
        assert table.schema.names == names
        assert table[:1].to_pylist() == [{"partition": 0, "value": b"3", "leader_epoch": 0, "topic": "many"}]
    with logs.log("many").snapshot() as snapshot:
        assert snapshot.read(columns=["topic"]).to_polars().columns == ["topic"]
    reader = logs.read("many", columns=["topic"])
    assert [record.value for record in reader] == [record.value for record in logs.read("many")]
    assert [columns.fields for columns in reader.columns()] == [("topic",)] * 2
    assert [columns.fields for columns in reader.columns(["key", "topic"], views=True)] == [("key", "topic")] * 2


def test_wrong_columns(logs: klog.LogManager) -> None:
    for read in (lambda names: logs.read("many", columns=names), lambda names: logs.log("many").read(columns=names)):
        with pytest.raises(ValueError, match="columns has 'age', which is unknown; use one of offset, .* partition"):
            read(["age"])
        for names in ([], ["key", "key"]):
            with pytest.raises(ValueError, match="columns must be one or more different names"):
                read(names)
        with pytest.raises(TypeError, match="columns"):
            read("key")
