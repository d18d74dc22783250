"""JSON values become structs. Compared with a slow model that reads each value with Python's json."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klog.decode import JsonDecoder, parse_ddl

BAD = object()


def decode(ddl: str, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    array, bad = JsonDecoder(parse_ddl(ddl)).decode(pa.array(values, pa.binary()))
    array.validate(full=True)
    assert array.type.equals(parse_ddl(ddl))
    return array.to_pylist(), bad


def field(kind: str, text: str) -> Any:
    """Return the field `a` of {"a": text}, or BAD if the row is null."""
    (found,), bad = decode(f"a {kind}", f'{{"a":{text}}}'.encode())
    assert (found is None) == (0 in bad)
    return BAD if bad else found["a"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", "1", BAD),
        ("boolean", '"true"', BAD),
        ("tinyint", "-128", -128),
        ("tinyint", "128", BAD),
        ("smallint", "32767", 32767),
        ("smallint", "-32769", BAD),
        ("int", "2147483647", 2147483647),
        ("int", "2147483648", BAD),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bigint", "9223372036854775808", BAD),
        ("bigint", "18446744073709551616", BAD),
        ("bigint", "9" * 5000, BAD),
        ("bigint", "-0", 0),
        ("bigint", "1.0", BAD),
        ("bigint", "1e3", BAD),
        ("bigint", "true", BAD),
        ("bigint", '"1"', BAD),
        ("bigint", "null", None),
        ("double", "5", 5.0),
        ("double", "-1.5e-3", -0.0015),
        ("double", "1e400", BAD),
        ("double", "9" * 400, BAD),
        ("double", "NaN", BAD),
        ("double", "-Infinity", BAD),
        ("double", '"NaN"', BAD),
        ("double", "9007199254740993", 9007199254740992.0),
        ("float", "1.5", 1.5),
        ("float", "1e39", BAD),
        ("float", "16777217", 16777216.0),
        ("string", '"\\u00e9\\ud83d\\ude00"', "é😀"),
        ("string", "5", BAD),
        ("string", '"\\ud800"', BAD),
        ("string", '{"b":1}', BAD),
        ("binary", '"aGk="', b"hi"),
        ("binary", '"aGk"', BAD),
        ("date", '"2013-02-08"', date(2013, 2, 8)),
        ("date", '"2013-02-30"', BAD),
        ("date", "5", BAD),
        ("timestamp", '"2013-02-08T05:00:00.25Z"', datetime(2013, 2, 8, 5, 0, 0, 250000, UTC)),
        ("timestamp", '"2013-02-08T05:00:00-05:00"', datetime(2013, 2, 8, 10, tzinfo=UTC)),
        ("timestamp", '"2013-02-08 05:00:00"', datetime(2013, 2, 8, 5, tzinfo=UTC)),
        ("timestamp", "1360299600", BAD),
        ("timestamp", '"yesterday"', BAD),
        ("timestamp_ntz", '"2013-02-08T05:00:00"', datetime(2013, 2, 8, 5)),
        ("timestamp_ntz", '"2013-02-08T05:00:00Z"', BAD),
        ("decimal(5,2)", "1.005", Decimal("1.01")),
        ("decimal(5,2)", '"-1.5"', Decimal("-1.50")),
        ("decimal(5,2)", "999.994", Decimal("999.99")),
        ("decimal(5,2)", "999.995", BAD),
        ("decimal(5,2)", '"NaN"', BAD),
        ("decimal(5,2)", '"sNaN"', BAD),
        ("decimal(5,2)", "1e999999999", BAD),
        ("decimal(5,2)", "1e-999999999", Decimal("0.00")),
        ("decimal(38,0)", "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
        ("array<int>", "[1,null]", [1, None]),
        ("array<int>", "[1,true]", BAD),
        ("array<int>", '{"0":1}', BAD),
        ("map<string,int>", '{"x":1,"y":null}', [("x", 1), ("y", None)]),
        ("map<string,int>", '[["x",1]]', BAD),
        ("map<string,int>", '{"x":1,"x":2}', [("x", 2)]),
        ("struct<b:int>", '{"b":1,"c":[]}', {"b": 1}),
        ("struct<b:int>", "{}", {"b": None}),
        ("struct<b:int>", '{"b":"1"}', BAD),
        ("array<struct<b:array<int>>>", '[{"b":[1]},null,{}]', [{"b": [1]}, None, {"b": None}]),
    ],
)
def test_a_field(kind: str, text: str, value: Any) -> None:
    assert field(kind, text) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "truncated"),
        (b" ", "truncated"),
        (b"{", "truncated"),
        (b'{"a":1}{"a":2}', "trailing characters"),
        (b'{"a":1}x', "trailing characters"),
        (b'{"a":1},"b":{"a":2}', "trailing characters"),
        (b"\xef\xbb\xbf{}", "malformed"),
        (b'{"a":1,}', "trailing comma"),
        (b'{"a":01}', "malformed"),
        (b"[]", "got `array`"),
        (b"5", "got `int`"),
        (b'{"a":"x"}', r"Expected `int \| null`, got `str` - at `\$.a`"),
        (b'{"b":"\xff"}', "byte 6 is not UTF-8"),
        (b'{"b":"\x01"}', "invalid character"),
        (b'{"b":' + b"[" * 100_000, "recursion"),
        (b'{"b":' + b'{"b":' * 100_000, "recursion"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "got `array`"),
    ],
)
def test_bad_values(value: bytes, why: str) -> None:
    import re

    good = b'{"a":1}'
    found, bad = decode("a int", good, value, None, good)
    assert found == [{"a": 1}, None, None, {"a": 1}]
    assert list(bad) == [1]
    assert re.search(why, bad[1]), bad[1]


def test_null_is_a_null_struct_and_empty_arrays_decode() -> None:
    assert decode("a int", b"null", None, b" {} ") == ([None, None, {"a": None}], {})
    assert decode("a array<struct<b:map<string,int>>>") == ([], {})


def test_values_that_do_not_fit_the_column_are_all_reported() -> None:
    """The parser accepts all values. The decoder finds the bad ones by bisection."""
    values = [b'{"m":{"k":{"d":%d}}}' % (10**9 if number % 3 == 0 else number) for number in range(1000)]
    found, bad = decode("m map<string,struct<d:decimal(5,2)>>", *values)
    assert sorted(bad) == list(range(0, 1000, 3))
    assert bad[999] == "m: d: a number has more digits than DECIMAL(5,2)"
    assert [row and row["m"][0][1]["d"] for row in found] == [n if n % 3 else None for n in range(1000)]


@pytest.mark.parametrize("name", ["", " ", "a b", "größe", "a.b", "`", "class", "f0", "😀"])
def test_any_name_of_a_field(name: str) -> None:
    quoted = name.replace("`", "``")
    assert decode(f"`{quoted}` int", json.dumps({name: 1}).encode()) == ([{name: 1}], {})


def test_a_name_that_the_parser_does_not_take_raises() -> None:
    with pytest.raises(ValueError, match="field name"):
        JsonDecoder(parse_ddl('`a"b` int'))


def test_a_decoder_pickles() -> None:
    decoder = pickle.loads(pickle.dumps(JsonDecoder(parse_ddl("a int"))))
    assert decoder.decode(pa.array([b'{"a":1}']))[0].to_pylist() == [{"a": 1}]


def test_importing_the_package_loads_no_library() -> None:
    script = (
        "import sys, klog.decode; print([m for m in ('pyarrow', 'msgspec', 'fastavro', 'pyspark') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(ImportError, match=r"pip install 'klog\[json\]'"):
        JsonDecoder(parse_ddl("a int"))


# ---- the model -------------------------------------------------------------------------------------------------------


class Object(list[tuple[str, Any]]):
    """The members of a JSON object, including repeated names."""


def model(kind: pa.DataType, value: bytes | None) -> Any:
    """Return what a value should decode to, or BAD."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    if value is None:
        return None
    try:
        parsed = json.loads(value.decode(), parse_float=Decimal, parse_constant=refuse, object_pairs_hook=Object)
        _check_text(parsed)
        if parsed is not None and not isinstance(parsed, Object):
            raise ValueError
        return _fit(kind, parsed)
    except (ValueError, OverflowError, ArithmeticError):
        return BAD


def _check_text(parsed: Any) -> None:
    if isinstance(parsed, str):
        parsed.encode()
    for each in parsed if isinstance(parsed, list | tuple) else ():
        _check_text(each)


def _fit(kind: pa.DataType, parsed: Any) -> Any:
    types = pa.types
    if parsed is None:
        return None
    if types.is_struct(kind) and isinstance(parsed, Object):
        found: dict[str, Any] = {each.name: None for each in kind}
        for name, value in parsed:
            if name in found:
                found[name] = _fit(kind.field(name).type, value)
        return found
    if types.is_map(kind) and isinstance(parsed, Object):
        return list({name: _fit(kind.item_type, value) for name, value in parsed}.items())
    if types.is_list(kind) and type(parsed) is list:
        return [_fit(kind.value_type, value) for value in parsed]
    if types.is_integer(kind) and type(parsed) is int:
        if not -(1 << kind.bit_width - 1) <= parsed < 1 << kind.bit_width - 1:
            raise ValueError
        return parsed
    if types.is_boolean(kind) and type(parsed) is bool:
        return parsed
    if types.is_string(kind) and type(parsed) is str:
        return parsed
    if types.is_float64(kind) and type(parsed) in (int, Decimal):
        number = float(parsed)
        if abs(number) == float("inf"):
            raise ValueError
        return number
    if types.is_decimal(kind) and type(parsed) in (int, Decimal):
        rounded = Decimal(parsed).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        if len(rounded.as_tuple().digits) > kind.precision:
            raise ValueError
        return rounded
    raise ValueError


KIND = parse_ddl(
    "id bigint, n tinyint, x double, s string, b boolean, d decimal(6,2), l array<array<int>>, "
    "m map<string, struct<s: string, x: double>>"
)
NAMES = ("id", "n", "x", "s", "b", "d", "l", "m", "other", "é")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=4),
    ),
    max_leaves=10,
)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "n": st.integers(-129, 128),
        "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "s": st.none() | st.text(max_size=5),
        "b": st.booleans(),
        "d": st.integers(-9999, 9999) | st.floats(-1e4, 1e4),
        "l": st.lists(st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3), max_size=3),
        "m": st.dictionaries(
            st.text(max_size=2), st.none() | st.fixed_dictionaries({"s": st.text(max_size=2)}), max_size=3
        ),
        "other": JSON,
    },
)
WHOLE = st.one_of(FITTING, FITTING, JSON).map(lambda value: json.dumps(value, ensure_ascii=False).encode())
ESCAPED = JSON.map(lambda value: json.dumps(value).encode())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw a value with a few bytes replaced, removed or inserted."""
    value = bytearray(draw(WHOLE))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value)))
        cut = draw(st.integers(0, 2))
        value[at : at + cut] = draw(st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"]", b",", b":", b"0", b"-", b"e9",
                                                     b"\xff", b"\n", b"\\ud83d", b"nul", b"\x00"]))  # fmt: skip
    return bytes(value)


@given(st.lists(st.one_of(st.none(), WHOLE, ESCAPED, damaged(), st.binary(max_size=8)), max_size=8))
@example([b'{"id":1,"id":"x"}', b'{"id":"x","id":1}', b'{"s":"\\ud83d\\ude00"}', b'{"other":"\\ud83dx"}'])
def test_values_are_those_of_the_model(values: list[bytes | None]) -> None:
    array, bad = JsonDecoder(KIND).decode(pa.array(values, pa.binary()))
    expected = [model(KIND, value) for value in values]
    assert sorted(bad) == [index for index, value in enumerate(expected) if value is BAD]
    assert array.to_pylist() == [None if value is BAD else value for value in expected]
    array.validate(full=True)


def test_a_float_column_rounds_to_the_nearest() -> None:
    assert field("float", "0.1") == struct.unpack("f", struct.pack("f", 0.1))[0]
