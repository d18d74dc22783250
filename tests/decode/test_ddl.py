"""Both text forms of Spark's schemas, DDL and JSON, become Arrow types. Arrow types become DDL."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.decode.ddl import DEPTH_MAX, ddl, parse

UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("id BIGINT", {"id": pa.int64()}),
        ("a byte, b Short, c INTEGER, d long", {"a": pa.int8(), "b": pa.int16(), "c": pa.int32(), "d": pa.int64()}),
        ("a real, b double, c boolean", {"a": pa.float32(), "b": pa.float64(), "c": pa.bool_()}),
        ("a string, b binary, c date", {"a": pa.string(), "b": pa.binary(), "c": pa.date32()}),
        ("a timestamp, b TIMESTAMP_LTZ, c timestamp_ntz", {"a": UTC, "b": UTC, "c": pa.timestamp("us")}),
        ("a decimal, b DEC(5), c numeric( 38 , 38 )",
         {"a": pa.decimal128(10, 0), "b": pa.decimal128(5, 0), "c": pa.decimal128(38, 38)}),
        ("tags ARRAY<STRING>", {"tags": pa.list_(pa.field("element", pa.string()))}),
        ("m map<string, array<int>>", {"m": pa.map_(pa.string(), pa.list_(pa.field("element", pa.int32())))}),
        ("s struct<a: int, `b``c`: string NOT NULL COMMENT 'x, >'>",
         {"s": pa.struct([("a", pa.int32()), ("b`c", pa.string())])}),
        ("struct<a int>", {"a": pa.int32()}),
        ("struct int", {"struct": pa.int32()}),
        ("`not` int not null, `größe` int", {"not": pa.int32(), "größe": pa.int32()}),
        (' \n a\tint COMMENT "it\\"s"\n', {"a": pa.int32()}),
    ],
)  # fmt: skip
def test_ddl_is_read(text: str, fields: dict[str, pa.DataType]) -> None:
    assert parse(text).equals(pa.struct(fields))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends where a field's name is expected"),
        ("id", "ends where a type is expected"),
        ("id BIGINT,", "ends where a field's name is expected"),
        ("id BIGNIT", "unknown type 'BIGNIT'; known: boolean, tinyint"),
        ("id BIGINT delay DOUBLE", "'delay' is left over"),
        ("id BIGINT; delay DOUBLE", "'; delay DOUBLE' is not understood at character 9"),
        ("a int, a string", "field 'a' is named twice"),
        ("a decimal(39,0)", r"DECIMAL\(39,0\) is not between"),
        ("a decimal(3,4)", r"DECIMAL\(3,4\) is not between"),
        ("a decimal(x)", "'x' is not a number"),
        ("a map<int,int>", "keys of a map are STRING, not INT"),
        ("a array<int", "'>' is expected, not the end"),
        ("a struct<>", "'>' is not a field's name"),
        ("'a' int", "is not a field's name"),
        ("a int not", "'NULL' is expected"),
        ("a int comment b", "COMMENT of field 'a' is not a text"),
        ("a " + "array<" * 100 + "int" + ">" * 100, f"nested more than {DEPTH_MAX} deep"),
        ("{", "Expecting property name"),
        ('{"type":"record"}', "JSON of a Spark schema begins with"),
        ('{"type":"struct","fields":[]}', "a struct needs a field"),
        ('{"type":"struct","fields":[{"name":"a","type":"map"}]}', "unknown type 'map'"),
        ('{"type":"struct","fields":[{"name":"a","type":{"type":"array"}}]}', "is not a type of a Spark schema"),
        ('{"type":"struct","fields":' * 3000, "recursion|Expecting"),
    ],
)
def test_other_texts_raise(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse(text)
    assert "expected like 'id BIGINT" in str(caught.value)


LEAVES = st.sampled_from([
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), UTC, pa.timestamp("us"), pa.decimal128(38, 4),
])  # fmt: skip
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


def structs(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(NAMES, types), min_size=1, max_size=4, unique_by=lambda field: field[0])
    return fields.map(pa.struct)


TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda item: pa.list_(pa.field("element", item))),
        inner.map(lambda item: pa.map_(pa.string(), item)),
        structs(inner),
    ),
    max_leaves=8,
)


@given(structs(TYPES))
def test_what_is_written_is_read(kind: pa.DataType) -> None:
    assert parse(ddl(kind)).equals(kind)


@given(structs(TYPES))
def test_json_of_sparks_schema_is_the_same_type(kind: pa.DataType) -> None:
    pandas = pytest.importorskip("pyspark.sql.pandas.types", reason="needs: pyspark")
    spark = pandas.from_arrow_type(kind, prefer_timestamp_ntz=True)
    assert parse(spark.json()).equals(kind)
    assert pandas.to_arrow_type(spark, timezone="UTC").equals(kind)


@given(st.text(max_size=60))
def test_any_text_raises_or_is_a_struct(text: str) -> None:
    try:
        assert pa.types.is_struct(parse(text))
    except ValueError:
        pass


def test_a_type_without_ddl_raises() -> None:
    with pytest.raises(ValueError, match="has no DDL"):
        ddl(pa.large_string())


def test_spaces_in_the_json_of_a_decimal() -> None:
    fields = [{"name": "a", "type": "decimal(5, 2)", "nullable": False, "metadata": {"comment": "x"}}]
    assert parse(json.dumps({"type": "struct", "fields": fields})).equals(pa.struct([("a", pa.decimal128(5, 2))]))
