"""The converters of tasks, without Spark: rows become the same records as with `klog import`."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pyarrow as pa
import pytest

from klog.errors import InvalidRecord
from klog.spark.import_rows import Converter, Kind
from klog.spark.rows import arrow_schema

Batch = dict[str, list[Any]]


def records(kind: Kind, batch: Batch | pa.RecordBatch, **columns: str | None) -> list[tuple[Any, ...]]:
    """Return (key, value, timestamp in ms) of each row."""
    given = {"key": None, "value": None, "timestamp": None, **columns}
    rows = batch if isinstance(batch, pa.RecordBatch) else pa.RecordBatch.from_pydict(batch)
    converter = Converter(kind, rows.schema.names, where="the source", **given)
    (made,) = pickle.loads(pickle.dumps(converter)).convert([rows])
    assert made.schema == arrow_schema(converter.schema)
    lists = [made.column(name).to_pylist() if name in made.schema.names else [None] * made.num_rows for name in given]
    return [
        (key, value, None if at is None else round(at.timestamp() * 1000))
        for key, value, at in zip(*lists, strict=True)
    ]


def test_a_value_is_its_row_or_one_column() -> None:
    rows: Batch = {"k": ["a", None, ""], "v": ["x", "", None], "n": [1, 2, None]}
    assert records("rows", rows, key="k") == [
        (b"a", b'{"k":"a","v":"x","n":1}', None),
        (None, b'{"k":null,"v":"","n":2}', None),
        (None, b'{"k":"","v":null,"n":null}', None),
    ]
    assert records("rows", rows, key="n", value="v", timestamp=None) == [
        (b"1", b"x", None),
        (b"2", b"", None),
        (None, None, None),
    ]
    assert records("rows", {"t": [1, 2], "v": [{"a": [1]}, None]}, value="v", timestamp="t") == [
        (None, b'{"a":[1]}', 1),
        (None, None, 2),
    ]


def test_times_are_in_utc_in_every_session() -> None:
    at = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    column = pa.array([at], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "America/New_York"))
    batch = pa.RecordBatch.from_arrays([column], names=["t"])
    assert records("rows", batch, timestamp="t") == [(None, b'{"t":"2013-01-01T05:00:00Z"}', 1357016400000)]


def test_the_text_of_a_cell_decides_its_type() -> None:
    cells: Batch = {"zip": ["00501", None], "n": ["7", "1e5"], "b": ["true", "True"]}
    assert records("cells", cells, key="zip") == [
        (b"00501", b'{"zip":"00501","n":7,"b":true}', None),
        (None, b'{"zip":null,"n":"1e5","b":"True"}', None),
    ]
    assert records("cells", cells, value="zip", timestamp=None) == [(None, b"00501", None), (None, None, None)]


def test_a_line_stays_as_it_is() -> None:
    lines: Batch = {"line": [b'{"id": 1, "n": 1.50}\r', b"", None, b'\xef\xbb\xbf{"n":[ ]}']}
    assert records("lines", lines, key="id") == [(b"1", b'{"id": 1, "n": 1.50}', None), (None, b'{"n":[ ]}', None)]
    assert records("lines", lines, value="n") == [(None, b"1.5", None), (None, b"[]", None)]


@pytest.mark.parametrize(
    ("kind", "batch", "columns", "message"),
    [
        ("rows", {"t": [1, -1]}, {"timestamp": "t"}, "the source: column 't': -1 is before 1970.*in the row .*-1"),
        ("rows", {"t": [1, -1]}, {"timestamp": "t", "value": "t"}, "-1 is before 1970.*in the row"),
        ("cells", {"t": ["1", "never"]}, {"timestamp": "t"}, "'never' is not a time.*in the row"),
        ("lines", {"line": [b'{"t":1}', b'{"a":']}, {}, 'invalid JSON.*in the row {"a":'),
        ("lines", {"line": [b"[1]"]}, {}, "a JSON array, expected an object"),
        ("lines", {"line": [b'{"t":1}', b"{}"]}, {"timestamp": "t"}, "the row has no 't'.*in the row {}"),
        ("lines", {"line": [b"{}"]}, {"timestamp": "t"}, "the row has no 't'"),
        ("lines", {"line": [b"{}"]}, {"value": "v"}, "the row has no 'v'"),
        ("lines", {"line": [b'{"a":"\xff"}']}, {}, "byte 7 of the line is not UTF-8"),
    ],
)
def test_a_row_that_is_not_a_record_raises_with_the_row(
    kind: Kind, batch: Batch, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRecord, match=message):
        records(kind, batch, **columns)


def test_a_key_that_is_in_no_line_is_reported() -> None:
    found: list[int] = []
    batches = [pa.RecordBatch.from_pydict({"line": [line]}) for line in (b'{"a":1}', b'{"b":1}')]
    for key, times in (("a", 1), ("b", 1), ("c", 0)):
        found.clear()
        list(Converter("lines", ["line"], key, None, None, "x", lambda: found.append(1)).convert(batches))
        assert len(found) == times
