"""Bytes become text, compared with Python's decoder."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from klog.decode import TextDecoder


def model(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode)), st.integers(0, 3))
def test_text_is_what_python_decodes(values: list[bytes | None], start: int) -> None:
    array, bad = TextDecoder().decode(pa.array(values, pa.binary()).slice(start))
    array.validate(full=True)
    assert array.type == pa.string()
    assert array.to_pylist() == [model(value) for value in values[start:]]
    assert set(bad) == {n for n, value in enumerate(values[start:]) if value is not None and model(value) is None}


def test_the_position_of_the_bad_byte_is_reported() -> None:
    assert TextDecoder().decode(pa.array([b"a\xff", b"b"]))[1] == {0: "byte 1 is not UTF-8: invalid start byte"}
