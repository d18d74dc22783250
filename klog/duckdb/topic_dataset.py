"""A topic as a pyarrow dataset. DuckDB calls scanner() with the columns and the filter of each query.

Imports pyarrow, so only the functions of views.py import it.

A timestamp that DuckDB cannot hold is null: its timestamps are microseconds, which end at 2⁶³ ÷ 1000 milliseconds (the
year 294247). With one of them, as of a producer that sends nanoseconds, every query of the column would fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow
import pyarrow.compute as pc
import pyarrow.dataset

import klog
from klog.decode import Decode, formats_of
from klog.duckdb.pruning import matching, of_partition, ranges
from klog.exporting.columns import COLUMNS, Columns
from klog.log import LogReader
from klog.log.read.isolation import Isolation
from klog.log.read.positions import Position

_TIME_MS_MAX = ((1 << 63) - 1) // 1000


class TopicScanner:
    """The scan of a topic, with the methods of pyarrow's Scanner. Any thread, any number of scans.

    The thread that takes a batch reads it. A Scanner of pyarrow reads dozens of batches ahead, in a thread that goes on
    after a consumer has had enough, as with LIMIT; a process that ends meanwhile is aborted, or hangs, because that
    thread runs Python code.
    """

    def __init__(
        self,
        schema: pyarrow.Schema,
        read: Callable[[], Iterator[pyarrow.RecordBatch]],
        columns: list[str],
        filter: Any,
        options: dict[str, Any],
    ) -> None:
        self._read = read
        self._columns = columns
        self._filter = filter
        self._options = options
        self.dataset_schema = schema
        self.projected_schema = self._scanner(schema.empty_table()).projected_schema

    def _scanner(self, records: pyarrow.RecordBatch | pyarrow.Table) -> pyarrow.dataset.Scanner:
        """Return a scanner of records in memory."""
        options = {**self._options, "use_threads": False}
        return pyarrow.dataset.InMemoryDataset(records).scanner(columns=self._columns, filter=self._filter, **options)

    def to_batches(self) -> Generator[pyarrow.RecordBatch, None, None]:
        """Iterate the matching records."""
        for batch in self._read():
            if self._options or not self._columns:
                yield from self._scanner(batch).to_batches()
            elif self._filter is None:  # from here on the same in less time
                yield batch.select(self._columns)
            else:
                found = pyarrow.Table.from_batches([batch]).filter(self._filter)
                yield from found.select(self._columns).to_batches()

    def to_reader(self) -> pyarrow.RecordBatchReader:
        """Return the matching records as a stream."""
        return pyarrow.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pyarrow.Table:
        """Return the matching records."""
        return pyarrow.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pyarrow.Table:
        """Return the first matching records. Reads no more than it needs for them."""
        found, rows = [], 0
        with closing(self.to_batches()) as batches:
            while rows < num_rows and (batch := next(batches, None)) is not None:
                found.append(batch)
                rows += len(batch)
        return pyarrow.Table.from_batches(found, self.projected_schema).slice(0, num_rows)

    def take(self, indices: Any) -> pyarrow.Table:
        """Return the matching records with these numbers."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of matching records."""
        return sum(map(len, self.to_batches()))


class TopicDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """The result of klog.duckdb.dataset. Any thread; each scan opens the log.dir again."""

    def __init__(
        self,
        paths: tuple[str, ...],
        topic: str,
        partitions: Sequence[int] | None,
        start: Position | None,
        stop: Position | None,
        isolation: Isolation,
        decode: Decode | None,
        *,
        logs: klog.LogManager,
    ) -> None:
        # Dataset.__init__ is not called: it raises, because a Dataset wraps an object of C++.
        self._paths, self._topic, self._partitions = paths, topic, partitions
        self._bounds: dict[str, Any] = {"start": start, "stop": stop, "isolation": isolation}
        self._formats = {} if decode is None else formats_of(decode)
        # An error that every query would raise is raised here. No partitions have the schema of all.
        self._schema = Columns(topic, self._readers(logs, COLUMNS, partitions or None), COLUMNS).schema

    def __repr__(self) -> str:
        return f"<TopicDataset {self._topic} of {', '.join(self._paths)}>"

    @property
    def schema(self) -> pyarrow.Schema:
        return self._schema

    def _readers(
        self, logs: klog.LogManager, names: Sequence[str], partitions: Sequence[int] | None
    ) -> dict[int, LogReader]:
        """Return {partition: its reader}, with the formats of these columns. partitions: None for all. The ends are
        fixed now."""
        # If the topic is unknown, log(topic, 0) raises the error.
        numbers = logs.topics().get(self._topic, [0]) if partitions is None else partitions
        formats = {column: each for column, each in self._formats.items() if column in names} or None
        return {number: logs.log(self._topic, number).read(**self._bounds, decode=formats) for number in numbers}

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> TopicScanner:
        """Return a scanner of some columns of the records that match a filter. Both None: all. options: batch_size and
        others of pyarrow's Scanner."""
        names = list(COLUMNS) if columns is None else list(columns)
        # An expression does not list its columns. A word of its text that only looks like a column costs time, no more.
        words = {*re.findall(r"\w+", str(filter))}
        needed = [name for name in COLUMNS if name in names or name in words]
        schema = pyarrow.schema([self._schema.field(name) for name in needed or ["offset"]])
        return TopicScanner(schema, partial(self._batches, schema.names, filter), names, filter, options)

    def _batches(self, names: Sequence[str], filter: Any) -> Iterator[pyarrow.RecordBatch]:
        return map(_with_duckdbs_times, self._stored(names, filter))

    def _stored(self, names: Sequence[str], filter: Any) -> Iterator[pyarrow.RecordBatch]:
        with klog.open(self._paths, read_only=True) as logs:
            readers = self._readers(logs, names, self._partitions)
            if not readers:
                return
            if filter is None:
                yield from Columns(self._topic, readers, names).batches()
                return
            known = [of_partition(self._topic, number) for number in readers]
            numbers = list(readers)
            for at in matching(filter, self._schema, known):
                number, reader = numbers[at], readers[numbers[at]]
                log = logs.log(self._topic, number)
                for low, high in ranges(filter, self._schema, log, reader, known[at]):
                    yield from Columns(self._topic, {number: reader.between(low, high)}, names).batches()

    def _has_no_fragments(self, *_: object, **__: object) -> Any:
        """Stands for the methods that need the C++ object of a Dataset. The others, such as to_table(), use
        scanner()."""
        raise NotImplementedError("a topic has no fragments: read it by DuckDB, scanner(), to_table() or to_batches()")

    get_fragments = filter = sort_by = join = join_asof = replace_schema = __reduce__ = _has_no_fragments
    partition_expression = property(_has_no_fragments)


def _with_duckdbs_times(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return a batch with null for the timestamps that DuckDB cannot hold."""
    at = batch.schema.get_field_index("timestamp")
    if at < 0:
        return batch
    times = batch.column(at)
    ms = times.cast(pyarrow.int64())
    fits = pc.and_(pc.less_equal(ms, _TIME_MS_MAX), pc.greater_equal(ms, -_TIME_MS_MAX))
    if pc.all(fits).as_py() is not False:
        return batch
    return batch.set_column(at, batch.schema.field(at), pc.if_else(fits, times, pyarrow.scalar(None, times.type)))
