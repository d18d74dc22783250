"""Columns in other libraries: any consumer of the Arrow PyCapsule interface can import them."""

import pytest

from klog.record import ArrowStream, columns, decode, encode, iter_records

T = 1_700_000_000_000


def fetched() -> bytes:
    """Many batches as one fetch returns them, including codecs, nulls and headers."""
    out = []
    for i in range(40):
        records = [
            (None if j % 3 == 0 else b"key %d" % j, None if j % 7 == 0 else b"v" * j, T + j, [("h", b"1")] * (j % 2))
            for j in range(20)
        ]
        out.append(encode(records, base_offset=20 * i, compression=(None, "lz4", "zstd")[i % 3]))
    return b"".join(out)


def wanted(data: bytes) -> list[tuple]:
    return [(r.offset, r.key, r.value) for r in iter_records(data)]


def test_one_set_of_columns_for_all_batches_of_a_fetch() -> None:
    pa = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    data = fetched()
    assert sum(1 for _ in decode(data)) == 40
    batch = pa.record_batch(columns(data))
    assert batch.num_rows == 800
    assert list(zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True)) == wanted(data)


VIEWS = pytest.mark.parametrize("views", [False, True], ids=["copies", "views"])


@VIEWS
def test_polars_imports_a_stream(views: bool) -> None:
    polars = pytest.importorskip("polars", reason="needs: polars")
    data = fetched()
    frame = polars.DataFrame(ArrowStream([columns(data, views=views), columns(data, views=views)], views=views))
    assert frame.select("offset", "key", "value").rows() == wanted(data) * 2


@VIEWS
def test_duckdb_imports_a_stream(views: bool) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs: duckdb")
    data = fetched()
    stream = ArrowStream([columns(data, views=views), columns(data, views=views)], views=views)
    with duckdb.connect() as database:
        database.register("records", stream)
        rows = database.sql('select "offset", key, value from records').fetchall()
    assert rows == wanted(data) * 2
