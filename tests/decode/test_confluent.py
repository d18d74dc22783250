"""Avro values in Confluent's format become columns. Compared with fastavro and with a strict, slow reader."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.decode import ConfluentAvroDecoder, Schema, Schemas, parse_ddl

fastavro = pytest.importorskip("fastavro", reason="needs: fastavro")
NOON = datetime(2013, 2, 8, 12, 0, 0, 250000, UTC)


def body(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + struct.pack(">i", number) + data


def schemas(*texts: Any) -> Schemas:
    """Return schemas with the ids 1, 2, ..."""
    return Schemas({number: Schema(json.dumps(each)) for number, each in enumerate(texts, 1)}, origin="schemas.json")


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields], **more}


def read(decoder: ConfluentAvroDecoder, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    array, bad = decoder.decode(pa.array(values, pa.binary()))
    array.validate(full=True)
    assert array.type.equals(decoder.type)
    return array.to_pylist(), bad


def avro(known: Schemas, reader: int | str | None = None) -> ConfluentAvroDecoder:
    """Return a decoder to the schema with an id (the newest by default), or to DDL."""
    given = parse_ddl(reader) if isinstance(reader, str) else known.by_id[reader or max(known.by_id)]
    return ConfluentAvroDecoder(known, given)


EVERY_TYPE = record(
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "long"),
    ("float", "float"),
    ("double", "double"),
    ("bytes", "bytes"),
    ("string", "string"),
    ("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("fixed", {"type": "fixed", "name": "F", "size": 3}),
    ("array", {"type": "array", "items": ["null", "int"]}),
    ("map", {"type": "map", "values": "string"}),
    ("record", record(("a", ["int", "null"]), name="Inner")),
    ("again", ["null", "Inner"]),
    ("date", {"type": "int", "logicalType": "date"}),
    ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
    ("micros", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("decimal", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}),
    ("fixed_decimal", {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 5, "scale": 5}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("time", {"type": "int", "logicalType": "time-millis"}),
    ("wrong", {"type": "string", "logicalType": "date"}),
)
UUID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
VALUE = {
    "boolean": True,
    "int": -5,
    "long": 2**40,
    "float": 0.5,
    "double": 0.1,
    "bytes": b"\xff",
    "string": "é",
    "enum": "B",
    "fixed": b"abc",
    "array": [1, None],
    "map": {"k": "v"},
    "record": {"a": None},
    "again": {"a": 7},
    "date": date(1969, 12, 31),
    "millis": NOON,
    "micros": NOON,
    "local": NOON.replace(tzinfo=None),
    "decimal": Decimal("-123456789012345678901234567890123456.78"),
    "fixed_decimal": Decimal("-0.00001"),
    "uuid": UUID,
    "time": 5,
    "wrong": "x",
}


def test_every_type() -> None:
    decoder = avro(schemas(EVERY_TYPE))
    assert decoder.type.equals(
        parse_ddl(
            "boolean boolean, int int, long bigint, float float, double double, bytes binary, string string, "
            "enum string, fixed binary, array array<int>, map map<string,string>, record struct<a:int>, "
            "again struct<a:int>, date date, millis timestamp, micros timestamp, local timestamp_ntz, "
            "decimal decimal(38,2), fixed_decimal decimal(5,5), uuid string, time int, wrong string"
        )
    )
    stored = {**VALUE, "time": __import__("datetime").time(0, 0, 0, 5000)}
    found, bad = read(decoder, framed(1, body(EVERY_TYPE, stored)), None)
    assert found == [{**VALUE, "map": [("k", "v")], "uuid": str(UUID)}, None]
    assert not bad


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ("string", "a", "a"),
        ({"type": "long"}, 5, 5),
        (["null", "double"], None, None),
        ({"type": "array", "items": "int"}, [1], [1]),
        ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, UUID.bytes, str(UUID)),
    ],
)
def test_values_that_are_not_records(schema: Any, value: Any, shown: Any) -> None:
    plain = {key: schema[key] for key in schema if key != "logicalType"} if isinstance(schema, dict) else schema
    assert read(avro(schemas(schema)), framed(1, body(plain, value))) == ([shown], {})


# ---- resolution ------------------------------------------------------------------------------------------------------


def test_older_and_newer_values_in_one_array_keep_their_order() -> None:
    old = record(("id", "int"), ("gone", {"type": "map", "values": "long"}), name="a.Flight")
    new = record(("ID", "long"), ("note", "string"), name="b.Flight")
    new["fields"][0]["aliases"] = ["id"]
    new["fields"][1]["default"] = "none"
    known = schemas(old, new)
    values = [
        framed(2, body(new, {"ID": 2**40, "note": "x"})) if n % 3 else framed(1, body(old, {"id": n, "gone": {"a": 1}}))
        for n in range(20)
    ]
    values[4:6] = [None, b"?"]
    expected = [{"ID": 2**40, "note": "x"} if n % 3 else {"ID": n, "note": "none"} for n in range(20)]
    expected[4:6] = [None, None]
    found, bad = read(avro(known), *values)
    assert found == expected
    assert list(bad) == [5]


@pytest.mark.parametrize(
    ("writer", "value", "reader", "shown"),
    [
        ("int", 3, "long", 3),
        ("int", 3, "float", 3.0),
        ("long", 2**53 + 1, "double", 2.0**53),
        ("long", 2**40, "float", 2.0**40),
        ("float", 0.5, "double", 0.5),
        ("string", "é", "bytes", "é".encode()),
        ("bytes", b"abc", "string", "abc"),
        ("int", 3, ["null", "long"], 3),
        (["null", "int"], None, "int", None),
        ("null", None, ["null", "long"], None),
        ({"type": "array", "items": "int"}, [1], {"type": "array", "items": "double"}, [1.0]),
        ({"type": "map", "values": "int"}, {"a": 1}, {"type": "map", "values": "long"}, [("a", 1)]),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "Z"]}, "Z",
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, "A",
        ),
        ("long", 5, {"type": "long", "logicalType": "timestamp-millis"}, datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, {"type": "long", "logicalType": "timestamp-micros"},
         datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, "long", 5),
    ],
)  # fmt: skip
def test_promotions(writer: Any, value: Any, reader: Any, shown: Any) -> None:
    written, wanted = record(("a", writer)), record(("a", reader))
    known = schemas(written, wanted)
    assert read(avro(known), framed(1, body(written, {"a": value}))) == ([{"a": shown}], {})


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        (record(("a", "long")), record(("a", "int")), "schema 1: a is long in the writer's schema and int"),
        (record(("a", "string")), record(("a", "int")), "a is string in the writer's schema and int"),
        (record(("a", "int")), record(("a", "int"), ("b", "int")), "b is not in the writer's schema, and has no default"),
        (record(("a", "int")), record(("a", "int"), name="S"), "record R in .* record S in .*: give the reader's the alias 'R'"),
        (record(("a", ["int", "string"])), record(("a", "int")), "a is union of int, string .* and int"),
        (record(("a", {"type": "fixed", "name": "F", "size": 2})), record(("a", {"type": "fixed", "name": "F", "size": 3})),
         "a has 2 bytes in the writer's schema, not 3"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})),
         record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1})),
         r"a is decimal\(4,2\) in the writer's schema and decimal\(4,1\)"),
        (record(("a", "null")), record(("a", "int")), "a is null"),
        (record(("x", "int"), ("a", record(("b", "string"), name="I"))), record(("a", record(("b", "long"), name="I"))),
         "a.b is string"),
    ],
)  # fmt: skip
def test_schemas_that_do_not_resolve(writer: Any, reader: Any, why: str) -> None:
    import re

    found, bad = read(avro(schemas(writer, reader)), framed(1, b"\0"), None)
    assert found == [None, None]
    assert re.search(why, bad[0]), bad[0]


def test_an_enum_without_default_makes_only_its_values_bad() -> None:
    old, new = ({"type": "enum", "name": "E", "symbols": symbols} for symbols in (["A", "Z"], ["A"]))
    found, bad = read(avro(schemas(old, new)), framed(1, b"\0"), framed(1, b"\2"), framed(2, b"\0"))
    assert found == ["A", None, "A"]
    assert bad == {1: "schema 1: the reader's enum E has no symbol 'Z' and no default"}


def test_defaults_of_every_kind() -> None:
    inner = record(("k", "bytes"), ("q", ["int", "null"]), name="N")
    inner["fields"][1]["default"] = 5
    new = record(
        ("a", "int"), ("n", inner), ("l", {"type": "array", "items": "string"}), ("m", {"type": "map", "values": "int"})
    )
    new["fields"][1]["default"] = {"k": "\u00ff"}
    new["fields"][2]["default"] = ["x"]
    new["fields"][3]["default"] = {"y": 1}
    found, bad = read(avro(schemas(record(("a", "int")), new)), framed(1, b"\2"))
    assert (found, bad) == ([{"a": 1, "n": {"k": b"\xff", "q": 5}, "l": ["x"], "m": [("y", 1)]}], {})


@pytest.mark.parametrize(
    ("kind", "default"), [("int", "x"), ("int", None), ("bytes", 5), ("string", {}), ("int", 2**31)]
)
def test_a_default_of_another_type(kind: str, default: Any) -> None:
    new = record(("a", "int"), ("b", kind))
    new["fields"][1]["default"] = default
    _, bad = read(avro(schemas(record(("a", "int")), new)), framed(1, b"\2"))
    assert "the default of b does not have its type" in bad[0]


def test_ddl_chooses_and_converts_fields() -> None:
    value = framed(1, body(EVERY_TYPE, {**VALUE, "time": __import__("datetime").time(0)}))
    decoder = avro(schemas(EVERY_TYPE), "micros timestamp, millis timestamp, int double, decimal decimal(38,2), "
                   "enum string, absent array<int>, record struct<b:int,a:int>, date date")  # fmt: skip
    assert read(decoder, value) == (
        [{
            "micros": NOON, "millis": NOON, "int": -5.0, "decimal": VALUE["decimal"], "enum": "B", "absent": None,
            "record": {"b": None, "a": None}, "date": VALUE["date"],
        }],
        {},
    )  # fmt: skip


@pytest.mark.parametrize(
    "ddl",
    ["long int", "string int", "int timestamp", "millis timestamp_ntz", "local timestamp", "int smallint", "array int",
     "record map<string,int>", "map struct<a:int>", "double float", "long decimal(5,2)", "date timestamp", "boolean int"],
)  # fmt: skip
def test_ddl_that_does_not_fit(ddl: str) -> None:
    _, bad = read(avro(schemas(EVERY_TYPE), ddl), framed(1, b""))
    name, kind = ddl.split(" ", 1)
    assert f"schema 1: {name} is " in bad[0]
    assert kind.split("<")[0] in bad[0]


# ---- bad values ------------------------------------------------------------------------------------------------------


def test_values_without_confluents_header() -> None:
    decoder = avro(schemas("int"))
    values = [b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1\2", b'{"a":1}']
    found, bad = read(decoder, *values, framed(1, b"\2"))
    assert found == [None] * 5 + [1]
    assert set(bad.values()) == {
        "it does not begin with the byte 0 and a schema id of four bytes, as Confluent's format does"
    }


def test_unknown_ids_are_named() -> None:
    known = Schemas({1: Schema('"int"')}, other={3: "PROTOBUF"}, origin="/data/_schemas-0")
    _, bad = read(ConfluentAvroDecoder(known, known.by_id[1]), framed(2, b"\2"), framed(3, b"\2"), framed(-1, b""))
    assert bad == {
        0: "schema id 2 is not in /data/_schemas-0; add it there, and start the query again",
        1: "schema 3 is of type PROTOBUF, not AVRO",
        2: "schema id -1 is not in /data/_schemas-0; add it there, and start the query again",
    }


def test_every_prefix_and_every_longer_value_is_bad() -> None:
    """This also holds if the reader leaves out the field that is cut."""
    whole = framed(1, body(EVERY_TYPE, {**VALUE, "time": __import__("datetime").time(0)}))
    values = [whole[:size] for size in range(len(whole))] + [whole + b"\0"]
    for decoder in (avro(schemas(EVERY_TYPE)), avro(schemas(EVERY_TYPE), "int int")):
        found, bad = read(decoder, *values)
        assert found == [None] * len(values)
        assert len(bad) == len(values)
    assert "1 bytes are left over" in bad[len(values) - 1]


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01"),  # a count of −2⁶³
        ({"type": "array", "items": "int"}, b"\xfe" + b"\xff" * 8 + b"\x01"),  # 2⁶³ − 1
        ({"type": "map", "values": "int"}, b"\xfe" + b"\xff" * 8 + b"\x01"),
        ("string", b"\xfe" + b"\xff" * 8 + b"\x01"),
        ("bytes", b"\x01"),  # a length of −1
        ("string", b"\x02\xff"),
        ("int", b"\x80\x80\x80\x80\x10"),  # 2³¹
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01"),  # −1
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04"),
        (["null", "int"], b"\x01\x02"),
        (["null", "int"], b"\x04"),
        ({"type": "array", "items": ["null", {"type": "enum", "name": "E", "symbols": ["A"]}]}, b"\x02\x02\x01\x00"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x06\x7f\xff\xff"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, b"\x80\x89\x7a" + b"\x7f" * 1_000_000),
    ],
)  # fmt: skip
def test_hostile_bodies(schema: Any, data: bytes) -> None:
    found, bad = read(avro(schemas(record(("x", schema)))), framed(1, data), None)
    assert found == [None, None]
    assert list(bad) == [0]


CHAIN = [record(("a", "int"), name="r0")] + [
    record(("a", f"r{n - 1}"), ("b", f"r{n - 1}"), name=f"r{n}") for n in range(1, 40)
]
DEEP = [record(("a", "int"), name="r0")] + [record(("a", f"r{n - 1}"), name=f"r{n}") for n in range(1, 60)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type":"record","name":"a.L","fields":[{"name":"next","type":["null","L"]}]}', "recursive: a.L contains itself"),
        ('{"type":"record","name":"L","fields":[{"name":"n","type":{"type":"map","values":"L"}}]}', "is recursive: L"),
        ('{"type":"array","items":"null"}', "whose items take no bytes"),
        ('{"type":"array","items":{"type":"record","name":"E","fields":[]}}', "whose items take no bytes"),
        ('{"type":"array","items":{"type":"fixed","name":"E","size":0}}', "whose items take no bytes"),
        ('{"type":"record","name":"E","fields":[]}', "record without fields"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":["int","string"]}]}', "a is a union of int, string"),
        ('"Foo"', "type 'Foo' is not known"),
        ('{"type":"array"}', "not an Avro schema"),
        ('{"type":"fixed","name":"F","size":-1}', "-1 is not the size"),
        ('{"type":"enum","name":"F","symbols":"AB"}', "'AB' is not a list of names"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', "two fields"),
        ('{"type":"record","fields":[]}', "not an Avro schema: KeyError 'name'"),
        ("{", "Expecting property name"),
        ("[" * 5000 + "]" * 5000, "nested more than"),
        (json.dumps(CHAIN), "more than 10000 types"),
        (json.dumps(DEEP), "nested more than 50 deep"),
    ],
)  # fmt: skip
def test_schemas_without_a_column_type(text: str, why: str) -> None:
    """As the reader's schema, it raises an error. As a writer's schema, its values are bad."""
    import re

    with pytest.raises(ValueError, match=why):
        ConfluentAvroDecoder(schemas(), Schema(text))
    if not re.search("without fields|a union", why):
        known = Schemas({1: Schema(text), 2: Schema('"int"')})
        found, bad = read(ConfluentAvroDecoder(known, known.by_id[2]), framed(1, b"\2"), framed(2, b"\2"))
        assert found == [None, 1]
        assert re.search(why, bad[0])


def test_a_schema_that_only_fastavro_refuses_makes_its_values_bad() -> None:
    known = schemas(record(("a", {"type": "enum", "name": "E", "symbols": ["1 A"]})))
    _, bad = read(avro(known), framed(1, b"\0"))
    assert "not an Avro schema" in bad[0]


WORDS = st.sampled_from([
    "type", "name", "fields", "items", "values", "symbols", "size", "logicalType", "precision", "scale", "aliases", "default",
    "namespace", "record", "enum", "fixed", "array", "map", "union", "null", "int", "long", "bytes", "string", "decimal",
    "uuid", "date", "timestamp-millis", "a", "b", "a.b", "",
])  # fmt: skip
SHAPES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(-2, 40),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(WORDS, inner, max_size=5),
        st.fixed_dictionaries({"type": st.just("record"), "name": WORDS, "fields": st.lists(
            st.fixed_dictionaries({"name": WORDS, "type": inner}, optional={"default": inner, "aliases": inner}), max_size=3)}),
        st.fixed_dictionaries({"type": st.sampled_from(["array", "map", "enum", "fixed", "bytes", "long"])},
                              optional={"items": inner, "values": inner, "name": WORDS, "size": inner, "logicalType": WORDS,
                                        "symbols": st.lists(WORDS, max_size=2), "precision": inner, "scale": inner}),
    ),
    max_leaves=12,
)  # fmt: skip


@given(SHAPES, SHAPES, st.binary(max_size=6))
def test_any_json_is_a_schema_or_a_named_error(writer: Any, reader: Any, data: bytes) -> None:
    known = schemas(writer, reader)
    for given_reader in (1, 2, "a int"):
        try:
            decoder = avro(known, given_reader)
        except ValueError:
            continue
        found, bad = read(decoder, framed(1, data), framed(2, data))
        assert all(found[index] is None for index in bad)


def test_null_means_no_namespace_and_no_aliases() -> None:
    schema = record(("a", "int"), namespace=None, aliases=None)
    assert read(avro(schemas(schema)), framed(1, b"\2")) == ([{"a": 1}], {})


def test_references_are_read_first() -> None:
    inner = json.dumps(record(("a", "int"), name="com.x.Inner"))
    outer = json.dumps(record(("one", "com.x.Inner"), ("two", ["null", "com.x.Inner"]), name="com.y.Outer"))
    known = Schemas({7: Schema(outer, (inner,))})
    decoder = pickle.loads(pickle.dumps(ConfluentAvroDecoder(known, known.by_id[7])))
    assert read(decoder, framed(7, b"\2\2\4")) == ([{"one": {"a": 1}, "two": {"a": 2}}], {})


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"pip install 'klog\[avro\]'"):
        avro(schemas("int"))


# ---- the models ------------------------------------------------------------------------------------------------------


class Overlong(Exception):
    """A number of more than ten bytes, which the specification does not define."""


class Slow:
    """Reads a value byte by byte, as the specification defines it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise Overlong
        if found >= 1 << 64:
            raise Overlong
        return (found >> 1) ^ -(found & 1)

    def blocks(self, item: Any) -> None:
        while count := self.number():
            if count < 0:
                self.number()
            for _ in range(abs(count)):
                item()

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            index = self.number()
            if not 0 <= index < len(schema):
                raise ValueError
            return self.value(schema[index])
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\0"  # 2 to 255 are not valid in Avro; fastavro reads them as true
            case "int" | "long":
                number = self.number()
                if kind == "int" and not -(2**31) <= number < 2**31:
                    raise ValueError
                return number
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "bytes":
                return self.take(self.number())
            case "string":
                return self.take(self.number()).decode()
            case "enum":
                index = self.number()
                if not 0 <= index < len(schema["symbols"]):
                    raise ValueError
                return schema["symbols"][index]
            case "fixed":
                return self.take(schema["size"])
            case "record":
                return {each["name"]: self.value(each["type"]) for each in schema["fields"]}
            case "array":
                items: list[Any] = []
                self.blocks(lambda: items.append(self.value(schema["items"])))
                return items
            case "map":
                pairs: dict[str, Any] = {}

                def pair() -> None:
                    key = self.take(self.number()).decode()
                    pairs[key] = self.value(schema["values"])

                self.blocks(pair)
                return list(pairs.items())
        raise AssertionError(kind)


HOSTILE = record(
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}),
    ("s", ["null", "string"]),
    ("l", {"type": "array", "items": ["null", "int"]}),
    (
        "m",
        {"type": "map", "values": record(("b", "boolean"), ("f", {"type": "fixed", "name": "F", "size": 2}), name="I")},
    ),
    ("n", "long"),
    ("y", "bytes"),
)
GOOD = st.fixed_dictionaries({
    "e": st.sampled_from("ABC"),
    "s": st.none() | st.text(max_size=4),
    "l": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
    "m": st.dictionaries(st.text(max_size=2), st.fixed_dictionaries({"b": st.booleans(), "f": st.binary(min_size=2, max_size=2)}),
                         max_size=2),
    "n": st.integers(-(2**63), 2**63 - 1),
    "y": st.binary(max_size=4),
}).map(lambda value: body(HOSTILE, value))  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\x80", b"\xff", b"zz"])
        )
    return bytes(data)


@given(st.lists(st.one_of(st.none(), GOOD, damaged(), st.binary(max_size=20)), max_size=6))
def test_bytes_are_read_as_by_the_strict_reader(bodies: list[bytes | None]) -> None:
    found, bad = read(avro(schemas(HOSTILE)), *(each if each is None else framed(1, each) for each in bodies))
    for index, each in enumerate(bodies):
        if each is None:
            assert found[index] is None and index not in bad
            continue
        slow = Slow(each)
        try:
            expected = slow.value(HOSTILE)
            whole = slow.at == len(each)
        except Overlong:
            continue
        except ValueError:
            whole = False
        assert (index not in bad, found[index]) == (whole, expected if whole else None)


PRIMITIVES = ["boolean", "int", "long", "float", "double", "bytes", "string"]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.text(max_size=3).map(str.encode),
    "string": st.text(max_size=3),
}


@st.composite
def evolved(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Draw a writer's schema, a reader's schema and a value of the writer's schema."""
    wider = {"int": ["int", "long", "float", "double"], "long": ["long", "float", "double"], "float": ["float", "double"],
             "string": ["string", "bytes"], "bytes": ["bytes", "string"]}  # fmt: skip

    numbers: list[int] = []

    def pair(depth: int) -> tuple[Any, Any, st.SearchStrategy[Any]]:
        kind = draw(st.sampled_from([*PRIMITIVES, "array", "map", "record", "null"] if depth else PRIMITIVES))
        if kind == "null":
            writer, reader, values = pair(0)
            return ["null", writer], ["null", reader], st.none() | values
        if kind in ("array", "map"):
            writer, reader, values = pair(depth - 1)
            key = "items" if kind == "array" else "values"
            several = (
                st.lists(values, max_size=2)
                if kind == "array"
                else st.dictionaries(st.text(max_size=2), values, max_size=2)
            )
            return {"type": kind, key: writer}, {"type": kind, key: reader}, several
        if kind == "record":
            return fields(depth - 1)
        return kind, draw(st.sampled_from(wider.get(kind, [kind]))), VALUES[kind]

    def fields(depth: int) -> tuple[Any, Any, st.SearchStrategy[Any]]:
        names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
        written, wanted, values = [], [], {}
        for name in names:
            writer, reader, strategy = pair(depth)
            if draw(st.booleans()) or not written:
                written.append({"name": name, "type": writer})
                values[name] = strategy
                if draw(st.booleans()) or not wanted:
                    wanted.append({"name": name, "type": reader})
            else:
                wanted.append(
                    {
                        "name": name,
                        "type": ["null", reader] if not isinstance(reader, list) else reader,
                        "default": None,
                    }
                )
        numbers.append(len(numbers))
        name = f"R{len(numbers)}"
        return (
            {"type": "record", "name": name, "fields": written},
            {"type": "record", "name": name, "fields": draw(st.permutations(wanted))},
            st.fixed_dictionaries(values),
        )

    writer, reader, values = fields(2)
    return writer, reader, draw(values)


def shown(kind: pa.DataType, value: Any) -> Any:
    """Return a value of fastavro as Arrow returns it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: shown(each.type, value[each.name]) for each in kind}
    if pa.types.is_map(kind):
        return [(key, shown(kind.item_type, each)) for key, each in value.items()]
    if pa.types.is_list(kind):
        return [shown(kind.value_type, each) for each in value]
    return pa.scalar(value, kind).as_py() if pa.types.is_float32(kind) else value


@given(evolved())
def test_resolution_is_that_of_fastavro(case: tuple[Any, Any, Any]) -> None:
    writer, reader, value = case
    data = body(writer, value)
    expected = fastavro.schemaless_reader(
        io.BytesIO(data), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )
    decoder = avro(schemas(writer, reader))
    assert read(decoder, framed(1, data)) == ([shown(decoder.type, expected)], {})
