"""Cells become JSON, and times become milliseconds, from their text only."""

from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.importing.values import CellCache, cell_to_json, milliseconds
from klog.shown import iso

T = 1360299600000  # 2013-02-08T05:00:00Z


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("", "null"),
        ("0", "0"),
        ("-17", "-17"),
        ("999999999999999999", "999999999999999999"),
        ("1.50", "1.50"),
        ("-0.25", "-0.25"),
        ("1e-05", "1e-05"),
        ("1.5e+20", "1.5e+20"),
        ("true", "true"),
        ("false", "false"),
        ("1234567890123456789", '"1234567890123456789"'),
        ("1.234567890123456789", '"1.234567890123456789"'),
        ("007", '"007"'),
        ("+1", '"+1"'),
        ("1.", '"1."'),
        (".5", '".5"'),
        ("12e4", '"12e4"'),
        ("-", '"-"'),
        ("\u0663", '"\u0663"'),  # a digit, but not in JSON
        ("NA", '"NA"'),
        ("NaN", '"NaN"'),
        ("True", '"True"'),
        ("null", '"null"'),
        (" 1", '" 1"'),
        ('say "hi"\n', '"say \\"hi\\"\\n"'),
        ("Zürich", '"Zürich"'),
    ],
)
def test_a_cells_type_follows_from_its_text(cell: str, expected: str) -> None:
    assert cell_to_json(cell) == expected


@given(st.one_of(st.text(), st.integers().map(str), st.floats().map(repr)))
def test_every_cell_is_json_and_numbers_keep_their_text(cell: str) -> None:
    text = cell_to_json(cell)
    value = json.loads(text)
    if isinstance(value, str):
        assert value == cell
    elif value is None:
        assert cell == ""
    else:
        assert text == cell


def test_the_memory_of_cells_is_bounded() -> None:
    cache = CellCache(entries_max=3)
    assert [cache(str(i)) for i in [*range(10), *range(10)]] == [str(i) for i in [*range(10), *range(10)]]
    assert len(cache._known) <= 3


@pytest.mark.parametrize(
    "value",
    [
        T,
        str(T),
        float(T),
        "2013-02-08T05:00:00Z",
        "2013-02-08 05:00:00",
        "2013-02-08T00:00:00-05:00",
        "2013-02-08T05",
        datetime.datetime(2013, 2, 8, 5),
        datetime.datetime(2013, 2, 8, 6, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ],
)
def test_times_in_every_form(value: object) -> None:
    assert milliseconds(value) == T


def test_a_date_is_its_midnight() -> None:
    assert milliseconds(datetime.date(2013, 2, 8)) == milliseconds("2013-02-08") == T - 5 * 3_600_000


def test_milliseconds_are_truncated_not_rounded() -> None:
    assert milliseconds("2013-02-08T05:00:00.000999Z") == T


@pytest.mark.parametrize(
    "value", [None, "", "UA", "5 o'clock", True, 1.5, "-5", -5, "1969-12-31", "9" * 30, b"x", [], "1e3"]
)
def test_invalid_times_raise(value: object) -> None:
    with pytest.raises(ValueError, match=r"time|1970|64 bits"):
        milliseconds(value)


def test_iso_text_of_any_timestamp() -> None:
    assert iso(T + 7) == "2013-02-08T05:00:00.007Z"
    assert iso(2**62) == f"{2**62} ms"
