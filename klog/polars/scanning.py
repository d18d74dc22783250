"""klog.polars.scan: the records of a topic as a LazyFrame, through Polars' interface for IO sources.

S1  Polars passes a query's columns, filter and number of rows. Only those columns and the filter's are decoded.
    Partitions, offsets and batches that the filter excludes are not read; what is read is filtered.
S2  Polars counts the number of rows before the filter. So a query that has both reads without bounds.
S3  Each query opens the log.dir, fixes the end of each partition, and reads about 1 MiB of stored batches at a time,
    in the order of partitions and offsets.
S4  Batches are excluded by the timestamps in their headers, as in a search by time: the checksums of excluded batches
    are not verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import klog
from klog import arguments, extras
from klog.log import LogReader
from klog.log.read.isolation import Isolation
from klog.log.read.positions import Position
from klog.log.read.tables import polars_frames, polars_types
from klog.manager.directory_set import Paths
from klog.polars.bounds import Bounds, bounds_of
from klog.record import TimestampType
from klog.values import dataclass, replace

if TYPE_CHECKING:
    import polars as pl

    from klog.decode import Decode
    from klog.log.read.decoding import OnBad
    from klog.segment import HeaderColumns

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "topic", "partition")
_CONSTANT = ("topic", "partition")
_HEADERS = ("position", "size", "base_offset", "last_offset", "max_timestamp", "timestamp_type", "magic")
_GAP_BYTES = 1 << 20  # of excluded batches: a smaller gap is read too, because one read costs less than two


def scan(
    path: Paths,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Position | None = None,
    stop: Position | None = None,
    isolation: Isolation = "high_watermark",
    columns: Iterable[str] | None = None,
    decode: Decode | None = None,
    on_bad: OnBad = "raise",
) -> pl.LazyFrame:
    """Return a LazyFrame of a topic's records. Each query reads the log.dir as it is when the query begins, in
    bounded memory.

    path: a log.dir, or several. partitions: their numbers, all of the topic by default. start, stop, isolation: as in
    Log.read, for each partition; times before now, such as "-3h", are before the query. columns: some of offset,
    timestamp, timestamp_type, key, value, headers, topic, partition, in this order by default. decode, on_bad: as in
    Log.read: the columns key and value then have the types of their formats, which needs pyarrow.

        flights = klog.polars.scan("data", "flights", start="2013-02-08T05:00Z")
        flights.filter(pl.col("offset") < 5000).group_by("key").len().collect()

    Polars passes on what a query needs: only its columns are decoded, and bounds of offset, partition and timestamp
    in its filter exclude batches from being read. Rows come in the order of partitions and offsets.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, FileNotFoundError, ValueError, and ImportError without polars;
    a query may also raise CorruptBatch, BadValue and OSError.
    """
    pl, register_io_source = _polars()
    numbers = None if partitions is None else tuple(sorted(set(arguments.wholes("partitions", partitions, 0))))
    with klog.open(path, read_only=True) as logs:
        source = _Source(logs.paths, topic, numbers, start, stop, isolation, _chosen(columns), decode, on_bad)
        readers = source.readers(logs)  # an error that every query would raise is raised here
        readers = readers or replace(source, partitions=None).readers(logs)  # none have the types of all
    types = {
        "offset": pl.Int64,
        "timestamp": pl.Datetime("ms", "UTC"),
        "timestamp_type": pl.Int8,
        "key": pl.Binary,
        "value": pl.Binary,
        "headers": pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
        "topic": pl.String,
        "partition": pl.Int32,
    }
    if decode is not None:
        reader = next(iter(readers.values()))
        types.update(polars_types(reader.arrow_stream(("key", "value"))))
    # Pure: a query with the source twice, such as a join with itself, reads it once, so both have the same records.
    return register_io_source(source.frames, schema={name: types[name] for name in source.columns}, is_pure=True)


def _polars() -> tuple[Any, Any]:
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise extras.missing("scan()", "polars", "polars", error) from error
    return polars, register_io_source


def _chosen(columns: Iterable[str] | None) -> tuple[str, ...]:
    if columns is None:
        return COLUMNS
    names = tuple(arguments.texts("columns", columns))
    for number, name in enumerate(names):
        if name not in COLUMNS or name in names[:number]:
            problem = "is named twice" if name in COLUMNS else "is unknown"
            raise ValueError(f"columns[{number}]={name!r} {problem}: choose from {', '.join(COLUMNS)}")
    if not names:
        raise ValueError(f"columns=[]: choose from {', '.join(COLUMNS)}")
    return names


@dataclass(frozen=True, slots=True)
class _Source:
    """What a scan reads. Any thread; each query is read by one."""

    paths: tuple[str, ...]
    topic: str
    partitions: tuple[int, ...] | None
    start: Position | None
    stop: Position | None
    isolation: Isolation
    columns: tuple[str, ...]
    decode: Decode | None
    on_bad: OnBad

    def readers(self, logs: klog.LogManager) -> dict[int, LogReader]:
        """Return {partition: its reader}. The ends are fixed now."""
        # If the topic is unknown, log(topic, 0) raises the error.
        numbers = logs.topics().get(self.topic, [0]) if self.partitions is None else self.partitions
        return {
            number: logs.log(self.topic, number).read(
                self.start, self.stop, isolation=self.isolation, decode=self.decode, on_bad=self.on_bad
            )
            for number in numbers
        }

    def frames(
        self, columns: Sequence[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield the frames of one query; Polars calls this. columns: those of the result and of the filter; None: all.
        rows: at most this many before the filter; None: no limit."""
        shape = _Shape(self.topic, columns or self.columns)
        bounds = Bounds() if predicate is None or rows is not None else bounds_of(predicate)
        with klog.open(self.paths, read_only=True) as logs:
            for partition, reader in self.readers(logs).items():
                if not bounds.wants(partition):
                    continue
                for part in _parts(reader.between(bounds.low, bounds.high), bounds):
                    for stored in self._frames(part, shape.fields):
                        if rows == 0:
                            return
                        frame = shape.frame(stored, partition)
                        if rows is not None:
                            frame = frame.head(rows)
                            rows -= frame.height
                        yield frame if predicate is None else frame.filter(predicate)

    def _frames(self, part: LogReader, fields: list[str]) -> Iterator[pl.DataFrame]:
        """Yield frames of these columns, with keys and values decoded if there are formats."""
        import polars as pl

        if self.decode is None or not {"key", "value"} & set(fields):
            return map(pl.DataFrame, part.columns(fields))
        return polars_frames(part.arrow_stream(fields))


class _Shape:
    """Makes frames of these columns, in this order."""

    def __init__(self, topic: str, columns: Sequence[str]) -> None:
        self._topic = topic
        self._columns = columns
        # If no column is decoded, offsets give the number of rows.
        self.fields = [name for name in columns if name not in _CONSTANT] or ["offset"]

    def frame(self, frame: pl.DataFrame, partition: int) -> pl.DataFrame:
        """Return a frame of records of a partition, with all columns."""
        import polars as pl

        if any(name in _CONSTANT for name in self._columns):
            frame = frame.with_columns(topic=pl.lit(self._topic, pl.String), partition=pl.lit(partition, pl.Int32))
        return frame.select(self._columns)


def _parts(reader: LogReader, bounds: Bounds) -> Iterator[LogReader]:
    """Yield the parts of a reader's range whose batches may have records of these times."""
    if not bounds.by_time:
        yield reader
        return
    for headers in reader.batch_headers(_HEADERS):
        for low, high in _ranges(headers, bounds):
            yield reader.between(low, high)


def _ranges(headers: HeaderColumns, bounds: Bounds) -> list[tuple[int, int]]:
    """Return the ranges of offsets that hold all batches of a segment that may match. Between two ranges there are at
    least _GAP_BYTES of other batches.

    A header has the greatest timestamp of its records. With LogAppendTime that is the timestamp of all of them; with
    CreateTime the others are not known. Headers of magic 0 and 1 are not relied on.
    """
    import polars as pl

    latest, may_match = pl.col("max_timestamp").to_physical(), pl.lit(True)
    if bounds.since_ms is not None:
        may_match &= latest >= bounds.since_ms
    if bounds.until_ms is not None:
        may_match &= (latest <= bounds.until_ms) | (pl.col("timestamp_type") != int(TimestampType.LOG_APPEND_TIME))
    after_gap = pl.col("position") - (pl.col("position") + pl.col("size")).shift(1) >= _GAP_BYTES
    found: list[tuple[int, int]] = (
        pl.DataFrame(headers)
        .filter(may_match | (pl.col("magic") < 2))
        .group_by(after_gap.fill_null(True).cum_sum(), maintain_order=True)
        .agg(low=pl.col("base_offset").first(), high=pl.col("last_offset").last() + 1)
        .select("low", "high")
        .rows()
    )
    return found
