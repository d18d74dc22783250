"""Readers that decode keys and values, as Arrow columns and as Python objects, and their handling of invalid values."""

from __future__ import annotations

import asyncio
import datetime
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import klog
from klog.decode import Avro, Json, from_records
from klog.errors import BadValue, CorruptBatch
from tests.support.batches import NOW

VALUES = [b'{"id": 1, "tags": ["a"]}', None, b'{"id": "x"}', b"\xff", b'{"id": 4}']
SCHEMA = Json("id BIGINT, tags ARRAY<STRING>")


@pytest.fixture
def logs(tmp_path: Path) -> Any:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t", 1).append([(b"k%d" % n, value, NOW + n, [("h", b"1")]) for n, value in enumerate(VALUES)])
        logs.create_topic("letters")
        yield logs


def test_text_and_json_without_a_schema(logs: Any) -> None:
    read = logs.read("t", decode={"key": "utf8", "value": "json"}, on_bad="null")
    table = read.to_arrow()
    assert table.schema.field("key").type == table.schema.field("value").type == pa.string()
    assert table["key"].to_pylist() == ["k0", "k1", "k2", "k3", "k4"]
    assert table["value"].to_pylist() == ['{"id": 1, "tags": ["a"]}', None, '{"id": "x"}', None, '{"id": 4}']
    assert [(record.offset, key, value) for record, key, value in read.decoded()] == [
        (0, "k0", {"id": 1, "tags": ["a"]}),
        (1, "k1", None),
        (2, "k2", {"id": "x"}),
        (3, "k3", None),
        (4, "k4", {"id": 4}),
    ]
    assert [record.value for record in read] == [value for _, value in read.pairs()] == VALUES  # as stored
    assert [value for _, _, value in logs.read("t", 2, 3, partition=1, decode="utf8").decoded()] == ['{"id": "x"}']


@pytest.mark.parametrize("text", [b"", b"{", b"1 2", b"NaN", b"'a'", b"[" * 100_000, b'"\xff"', b"01"])
def test_invalid_json_is_a_bad_value(tmp_path: Path, text: bytes) -> None:
    with klog.Log.open(tmp_path / "u-0") as log:
        log.append([(None, text), (None, b" [1e400, null] ")])
        assert log.read(decode="json", on_bad="null").to_arrow()["value"].to_pylist()[0] is None
        with pytest.raises(BadValue, match="u-0, offset 0: the value is bad: "):
            list(log.read(0, 1, decode="json").decoded())


def test_a_schema_gives_typed_columns_to_every_target(logs: Any, tmp_path: Path) -> None:
    read = logs.read("t", decode=SCHEMA, on_bad="null")
    rows = [{"id": 1, "tags": ["a"]}, None, None, None, {"id": 4, "tags": None}]
    assert read.to_arrow()["value"].to_pylist() == [value for _, _, value in read.decoded()] == rows
    assert read.to_polars()["value"].struct.field("id").to_list() == [1, None, None, None, 4]
    assert read.to_pandas()["value"][4] == {"id": 4, "tags": None}
    assert read.to_parquet(tmp_path / "out") == 5 and pq.read_table(tmp_path / "out")["value"].to_pylist() == rows
    assert pa.table(read.between(4, 5))["value"].to_pylist() == rows[4:]
    types = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    for same in (Json(types), Json(pa.struct(list(types)))):
        assert logs.read("t", decode=same, on_bad="null").to_arrow()["value"].to_pylist() == rows


def test_pandas_keeps_all_digits_beside_a_null(tmp_path: Path) -> None:
    large = (1 << 53) + 1
    with klog.Log.open(tmp_path / "u-0") as log:
        log.append([(None, b'{"id": %d, "ids": [%d, null]}' % (large, large)), (None, b"{}"), (None, None)])
        read = log.read(decode=Json("id BIGINT, ids ARRAY<BIGINT>"))
        first, second, third = read.to_pandas()["value"]
    assert type(first["id"]) is int and first["id"] == large and list(first["ids"]) == [large, None]
    assert second == {"id": None, "ids": None} and third is None


@pytest.mark.parametrize("method", ["to_arrow", "to_polars", "to_pandas"])
def test_a_bad_value_raises_with_its_offset(logs: Any, method: str) -> None:
    with pytest.raises(BadValue, match="t-1, offset 2: the value is bad: .*id.*on_bad=.null") as caught:
        getattr(logs.read("t", decode=SCHEMA), method)()
    assert (caught.value.partition, caught.value.offset, caught.value.column) == ("t-1", 2, "value")


def test_what_comes_before_a_bad_value_is_returned(logs: Any) -> None:
    seen: list[int] = []
    with pytest.raises(BadValue):
        seen.extend(record.offset for record, _, _ in logs.read("t", decode=SCHEMA).decoded())
    batches: list[int] = []
    with pytest.raises(pa.ArrowInvalid, match="offset 2"):
        batches.extend(len(batch) for batch in pa.RecordBatchReader.from_stream(logs.read("t", decode=SCHEMA)))
    assert seen == [0, 1] and batches == [2]


@pytest.mark.parametrize("method", ["decoded", "to_arrow"])
def test_dead_letters_are_the_records_and_their_origin(logs: Any, method: str) -> None:
    read = logs.read("t", decode={"key": "utf8", "value": SCHEMA}, dead_letter=(logs, "letters"))
    found = getattr(read, method)()
    offsets = [each.record.offset for each in found] if method == "decoded" else found["offset"].to_pylist()
    assert offsets == [0, 1, 4]
    letters = list(logs.read("letters"))
    assert [(letter.key, letter.value, letter.timestamp) for letter in letters] == [
        (b"k2", b'{"id": "x"}', NOW + 2),
        (b"k3", b"\xff", NOW + 3),
    ]
    headers = dict(letters[0].headers)
    message = headers.pop("__connect.errors.exception.message")
    assert (
        message is not None
        and b"id" in message
        and headers
        == {
            "h": b"1",
            "__connect.errors.topic": b"t",
            "__connect.errors.partition": b"1",
            "__connect.errors.offset": b"2",
            "__connect.errors.stage": b"VALUE_CONVERTER",
            "__connect.errors.exception.class.name": b"klog.errors.BadValue",
        }
    )
    list(logs.read("t", 3, 4, partition=1, decode={"key": "json"}, dead_letter=logs.log("letters")).decoded())
    assert dict(list(logs.read("letters"))[-1].headers)["__connect.errors.stage"] == b"KEY_CONVERTER"


def test_avro_of_the_registrys_topic(logs: Any) -> None:
    logs.create_topic("_schemas")
    schema = (
        '{"type":"record","name":"F","fields":[{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}'
    )
    key = {"keytype": "SCHEMA", "subject": "a-value", "version": 1, "magic": 1}
    value = {"subject": "a-value", "version": 1, "id": 7, "schema": schema}
    logs.append("_schemas", [(json.dumps(key).encode(), json.dumps(value).encode())])
    logs.create_topic("a")
    logs.append("a", [(None, b"\0" + struct.pack(">i", 7) + b"\x02")])
    registry = from_records(logs.read("_schemas").pairs(), "_schemas")
    (at,) = [value["at"] for _, _, value in logs.read("a", decode=Avro(registry)).decoded()]
    assert at == datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, datetime.UTC)
    for given in (Avro({7: schema}), Avro(registry, reader="at TIMESTAMP"), Avro({7: schema, 8: '"int"'}, schema)):
        assert logs.read("a", decode=given).to_arrow()["value"].to_pylist() == [{"at": at}]
    with pytest.raises(ValueError, match="has 2 schemas and no subject 'a-value'; name the schema"):
        logs.read("a", decode=Avro({7: schema, 8: '"int"'}))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"decode": "yaml"}, ValueError, "decode='yaml': choose 'utf8' or 'json'"),
        ({"decode": 1}, TypeError, "decode=1: 'utf8', 'json' or an object"),
        ({"decode": Json}, TypeError, "decode=.*'utf8', 'json' or an object"),
        ({"decode": {}}, ValueError, "decode={}: name a format"),
        ({"decode": {"headers": "utf8"}}, ValueError, "decode='headers': choose 'key' or 'value'"),
        ({"decode": {"key": "x"}}, ValueError, r"decode\['key'\]='x'"),
        ({"decode": "utf8", "on_bad": "skip"}, ValueError, "on_bad='skip': choose"),
        ({"on_bad": "null"}, ValueError, "on_bad has no meaning for bytes"),
        ({"decode": "utf8", "on_bad": "null", "dead_letter": ("logs", "letters")}, TypeError, r"dead_letter\[0\]"),
        ({"decode": "utf8", "dead_letter": 5}, TypeError, "dead_letter=5: a log, or a tuple"),
        ({"decode": "utf8", "include_control": True}, ValueError, "control records have Kafka's own format"),
    ],
)
def test_wrong_arguments(logs: Any, given: dict[str, Any], error: type[Exception], text: str) -> None:
    for read in (lambda: logs.read("t", **given), lambda: logs.log("t").read(**given)):
        with pytest.raises(error, match=text):
            read()


def test_wrong_schemas() -> None:
    with pytest.raises(ValueError, match="unknown type 'INTEGR'"):
        Json("a INTEGR")
    with pytest.raises(ValueError, match="Arrow type uint8 has no DDL"):
        Json(pa.schema([("a", pa.uint8())]))
    with pytest.raises(TypeError, match="schema=5: DDL, a pyarrow.Schema"):
        Json(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schemas does not have the form"):
        Avro({})


def test_damage_raises_after_the_records_before_it(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "u-0") as log:
        log.append([(None, b"a")])
        size = log.size
        log.append([(None, b"b")])
        with open(log.segments[0].path, "r+b") as file:
            file.seek(size + 65)
            file.write(b"x")
        seen: list[str] = []
        with pytest.raises(CorruptBatch):
            seen.extend(value for _, _, value in log.read(decode="utf8").decoded())
        assert seen == ["a"]
        with pytest.raises(CorruptBatch):
            log.read(decode="utf8").to_arrow()


def test_slices_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.decode.decoder.ROWS", 100)
    monkeypatch.setattr("klog.log.read.decoding._RECORDS", 100)
    with klog.Log.open(tmp_path / "u-0") as log:
        log.append([(None, b"%d" % n) for n in range(1050)])
        read = log.read(decode="json")
        assert [len(batch) for batch in pa.RecordBatchReader.from_stream(read)] == [100] * 10 + [50]
        assert [value for _, _, value in read.decoded()] == list(range(1050))


# ---- tails and named readers -----------------------------------------------------------------------------------------


def rows(found: Any) -> list[tuple[int, Any]]:
    return [(record.offset, value) for record, _, value in found]


async def rows_async(found: Any) -> list[tuple[int, Any]]:
    return [(record.offset, value) async for record, _, value in found]


GOOD = [(0, {"id": 1, "tags": ["a"]}), (1, None), (4, {"id": 4, "tags": None})]


@pytest.mark.parametrize("method", ["log", "topic", "reader", "reader's tail"])
@pytest.mark.parametrize("is_async", [False, True])
def test_tails_and_named_readers_decode(logs: Any, method: str, is_async: bool) -> None:
    def opened(**options: Any) -> Any:
        if method == "log":
            return logs.log("t", 1).tail("earliest", timeout=0, **options)
        if method == "topic":
            return logs.tail("t", "earliest", timeout=0, **options)
        reader = logs.reader("t", f"r{len(logs.readers())}{options.get('on_bad')}", **options)
        return reader if method == "reader" else reader.tail(timeout=0)

    def read(found: Any) -> list[tuple[int, Any]]:
        return asyncio.run(rows_async(found.decoded())) if is_async else rows(found.decoded())

    assert read(opened(decode=SCHEMA, on_bad="null")) == [*GOOD[:2], (2, None), (3, None), GOOD[2]]
    assert read(opened(decode=SCHEMA, dead_letter=(logs, "letters"))) == GOOD
    assert [record.offset for record in logs.read("letters")] == [0, 1]
    with pytest.raises(ValueError, match="decode="):
        read(opened())
    with pytest.raises(ValueError, match="on_bad has no meaning"):
        opened(on_bad="null")


@pytest.mark.parametrize("method", ["log", "topic", "reader"])
def test_tails_and_named_readers_return_the_records_before_a_bad_value(logs: Any, method: str) -> None:
    log = logs.log("t", 1)
    found: Any = {
        "log": lambda: log.tail("earliest", timeout=0, decode=SCHEMA),
        "topic": lambda: logs.tail("t", "earliest", timeout=0, decode=SCHEMA),
        "reader": lambda: logs.reader("t", "r", decode=SCHEMA, commit_every=1),
    }[method]()
    seen: list[int] = []
    decoded = found.decoded()
    with pytest.raises(BadValue, match="t-1, offset 2"):
        seen.extend(record.offset for record, _, _ in decoded)
    assert seen == [0, 1]
    with pytest.raises(BadValue, match="t-1, offset 2"):
        next(iter(decoded))
    if method == "reader":
        assert found.position == {0: 0, 1: 2} and found.committed[1] == 2
        found.seek(4, 1)
        assert rows(found.decoded()) == GOOD[2:]


def test_the_tables_of_a_named_reader_are_decoded(logs: Any, tmp_path: Path) -> None:
    values = [value for _, value in [*GOOD[:2], (2, None), (3, None), GOOD[2]]]
    for number, method in enumerate(("to_arrow", "to_polars", "to_pandas", "to_parquet")):
        with logs.reader("t", f"r{number}", decode=SCHEMA, on_bad="null") as reader:
            if method == "to_parquet":
                assert reader.to_parquet(tmp_path / "out") == 5
                found = pq.read_table(tmp_path / "out")["value"].to_pylist()
            else:
                table = getattr(reader, method)()
                found = table["value"].to_pylist() if method == "to_arrow" else list(table["value"])
            assert found == values and reader.position == {0: 0, 1: 5}
        assert logs.readers()[f"r{number}"] == {"t": {0: 0, 1: 5}}
    with logs.reader("t", "stored") as reader:
        assert reader.to_polars()["value"].to_list() == VALUES
