"""A topic as a pyarrow dataset. DuckDB calls scanner() with the columns and the filter of each query.

Imports pyarrow, so only the functions of views.py import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.dataset

import klog
from klog.decode import Decode, formats_of
from klog.duckdb.pruning import matching, of_partition, ranges
from klog.exporting.columns import COLUMNS, Columns
from klog.log import LogReader
from klog.log.read.isolation import Isolation
from klog.log.read.positions import Position


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
        # An error that every query would raise is raised here.
        self._schema = Columns(topic, self._readers(logs, COLUMNS), COLUMNS).schema

    def __repr__(self) -> str:
        return f"<TopicDataset {self._topic} of {', '.join(self._paths)}>"

    @property
    def schema(self) -> pyarrow.Schema:
        return self._schema

    def _readers(self, logs: klog.LogManager, names: Sequence[str]) -> dict[int, LogReader]:
        """Return {partition: its reader}, with the formats of these columns. The ends are fixed now."""
        # If the topic is unknown, log(topic, 0) raises the error.
        numbers = logs.topics().get(self._topic, [0]) if self._partitions is None else self._partitions
        formats = {column: each for column, each in self._formats.items() if column in names} or None
        return {number: logs.log(self._topic, number).read(**self._bounds, decode=formats) for number in numbers}

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any
    ) -> pyarrow.dataset.Scanner:
        """Return a scanner of some columns of the records that match a filter. Both None: all. options: batch_size,
        use_threads and others of a Scanner."""
        names = list(COLUMNS) if columns is None else list(columns)
        # An expression does not list its columns. A word of its text that only looks like a column costs time, no more.
        words = {*re.findall(r"\w+", str(filter))}
        needed = [name for name in COLUMNS if name in names or name in words]
        schema = pyarrow.schema([self._schema.field(name) for name in needed or ["offset"]])
        return pyarrow.dataset.Scanner.from_batches(
            self._batches(schema.names, filter), schema=schema, columns=names, filter=filter, **options
        )

    def _batches(self, names: Sequence[str], filter: Any) -> Iterator[pyarrow.RecordBatch]:
        with klog.open(self._paths, read_only=True) as logs:
            readers = self._readers(logs, names)
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
