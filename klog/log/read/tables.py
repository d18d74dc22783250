"""Arrow streams of records as tables, frames and Parquet files.

A consumer of an Arrow stream raises an error of its own if the stream fails. Here the caller gets the error of the
stream, with its attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from klog import extras
from klog.arguments import chosen, flag, function, path, whole
from klog.disk import NewFile, RealFiles
from klog.progress import Event

if TYPE_CHECKING:
    import os

    import pandas
    import polars
    import pyarrow

    from klog.progress import Progress

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20  # of Arrow columns, which are gathered in memory


class Stream(Protocol):
    """An Arrow stream. error: why it failed, or None."""

    @property
    def error(self) -> BaseException | None: ...

    def __arrow_c_schema__(self) -> Any: ...

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


def pyarrow_for(name: str) -> Any:
    """pyarrow, for the method with this name. Raises ImportError with what to install."""
    try:
        import pyarrow
    except ImportError as error:
        raise extras.missing(name, "pyarrow", "arrow", error) from error
    return pyarrow


@contextmanager
def errors_of(stream: Stream) -> Iterator[None]:
    """Replace the error of a consumer by that of the stream."""
    try:
        yield
    except Exception:
        if stream.error is not None:
            raise stream.error from None
        raise


class Tabular:
    """Records as tables of other libraries; any that takes Arrow streams takes the object itself."""

    def _stream(self) -> Stream:
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._stream().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pyarrow.Table:
        """The records as one pyarrow.Table. Needs pyarrow: pip install 'klog[arrow]'."""
        return table(self._stream())

    def to_pandas(self) -> pandas.DataFrame:
        """The records as one pandas.DataFrame. Needs pandas: pip install 'klog[pandas]'.

        Integers and booleans have pandas' nullable types (Int64, boolean), times are datetime64[ms, UTC], keys and
        values bytes, headers lists of {"key": str, "value": bytes}. Decoded structs are dicts with Python's integers.
        """
        return pandas_frame(self._stream())

    def to_polars(self) -> polars.DataFrame:
        """The records as one polars.DataFrame. Needs polars: pip install 'klog[polars]'.

        klog.polars.scan reads a topic lazily, in bounded memory, and only what a query needs.
        """
        return polars_frame(self._stream())

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        compression: str = "zstd",
        row_group_rows: int = ROW_GROUP_ROWS,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> int:
        """Write the records to a Parquet file in bounded memory. Returns the number of rows. Needs pyarrow.

        The file appears whole, on disk, when this returns; until then it is `<path>.tmp`. compression: zstd, snappy,
        gzip, lz4, brotli or none. row_group_rows: rows of a row group at most; it also ends at 64 MiB of columns.
        overwrite: replace an existing file. progress: called with klog.progress.Event after each row group.

        Raises FileExistsError, OSError, ValueError; CorruptBatch and ReadFailed, and then there is no file.
        """
        return parquet_file(
            self._stream(),
            path,
            compression=compression,
            row_group_rows=row_group_rows,
            overwrite=overwrite,
            progress=progress,
        )


def table(stream: Stream) -> pyarrow.Table:
    """The records of a stream as one pyarrow.Table."""
    pyarrow = pyarrow_for("to_arrow()")
    with errors_of(stream):
        return pyarrow.table(stream)


def polars_frame(stream: Stream) -> polars.DataFrame:
    """The records of a stream as one polars.DataFrame."""
    try:
        import polars
    except ImportError as error:
        raise extras.missing("to_polars()", "polars", "polars", error) from error
    with errors_of(stream):
        return polars.DataFrame(stream)


def polars_frames(stream: Stream) -> Iterator[polars.DataFrame]:
    """A frame of each batch of a stream, in bounded memory."""
    import polars
    import pyarrow

    with errors_of(stream):
        for batch in pyarrow.RecordBatchReader.from_stream(stream):
            yield polars.DataFrame(batch)


def polars_types(stream: Stream) -> dict[str, polars.DataType]:
    """The types of a stream's columns."""
    import polars
    import pyarrow

    return dict(polars.DataFrame(pyarrow.schema(stream).empty_table()).schema)


def pandas_frame(stream: Stream) -> pandas.DataFrame:
    """The records of a stream as one pandas.DataFrame."""
    try:
        import pandas
        import pyarrow
    except ImportError as error:
        raise extras.missing("to_pandas()", "pandas", "pandas", error) from error
    nullable = {
        pyarrow.bool_(): pandas.BooleanDtype(),
        pyarrow.int8(): pandas.Int8Dtype(),
        pyarrow.int16(): pandas.Int16Dtype(),
        pyarrow.int32(): pandas.Int32Dtype(),
        pyarrow.int64(): pandas.Int64Dtype(),
    }
    # Else a null makes floats of all integers in the structs and lists of a chunk, with 53 bits.
    return table(stream).to_pandas(types_mapper=nullable.get, integer_object_nulls=True)


def parquet_file(
    stream: Stream,
    target: str | os.PathLike[str],
    *,
    compression: str,
    row_group_rows: int,
    overwrite: bool,
    progress: Progress | None,
) -> int:
    """Write the records of a stream; see Tabular.to_parquet."""
    target = path("path", target)
    chosen("compression", compression, COMPRESSIONS)
    row_group_rows, overwrite = whole("row_group_rows", row_group_rows, 1), flag("overwrite", overwrite)
    function("progress", progress)
    pyarrow = pyarrow_for("to_parquet()")
    rows = 0
    with errors_of(stream), NewFile(target, RealFiles(), overwrite=overwrite) as file:
        reader = pyarrow.RecordBatchReader.from_stream(stream)
        for rows in write_parquet(file, reader.schema, reader, compression, row_group_rows):
            if progress is not None:
                progress(Event("export", rows))
        file.commit()
    if progress is not None:
        progress(Event("export", rows, rows))
    return rows


def write_parquet(
    file: Any,
    schema: pyarrow.Schema,
    batches: Iterable[pyarrow.RecordBatch],
    compression: str = "zstd",
    row_group_rows: int = ROW_GROUP_ROWS,
) -> Iterator[int]:
    """Write batches to a binary file as Parquet. Yields the number of rows written after each row group; the file is
    complete at the end of the iteration."""
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

    rows = 0
    with ParquetWriter(file, schema, compression=compression) as writer:
        for group in _groups(batches, row_group_rows):
            writer.write_table(Table.from_batches(group), row_group_size=row_group_rows)
            rows += sum(batch.num_rows for batch in group)
            yield rows


def _groups(batches: Iterable[Any], rows_max: int) -> Iterator[list[Any]]:
    """The batches in groups of at least rows_max rows, or of ROW_GROUP_BYTES."""
    group: list[Any] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= rows_max or size >= ROW_GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
