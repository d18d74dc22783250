"""Writes the records of a topic to a file, in the order of partitions and offsets.

The ends of all partitions are fixed when the export begins. Records are read and written a batch at a time. The file
appears under its name when it is complete and on disk; after a failure there is none.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from klog import arguments
from klog.disk import NewFile, RealFiles
from klog.exporting import texts
from klog.exporting.columns import COLUMNS, Columns
from klog.importing import UnknownFormat
from klog.log import Log, LogReader
from klog.log.read.isolation import Isolation
from klog.log.read.positions import Position, checked_position
from klog.log.read.tables import pyarrow_for, write_parquet
from klog.manager import LogManager, open_directory
from klog.progress import Event, Progress
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.decode import Decode
    from klog.log.read.decoding import DeadLetter, OnBad

FORMATS = ("parquet", "arrow", "csv", "jsonl")
_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of export_file. partitions: {partition: (first offset, next offset)} of what was read. bytes: of the
    output. There may be fewer records than offsets: compaction and control records leave gaps."""

    topic: str
    target: str
    form: str
    records: int
    bytes: int
    partitions: dict[int, tuple[int, int]]


def export_file(
    logs: LogManager | str | os.PathLike[str],
    topic: str,
    target: str | os.PathLike[str],
    *,
    partition: int | None = None,
    start: Position | None = None,
    stop: Position | None = None,
    isolation: Isolation = "high_watermark",
    form: str | None = None,
    columns: Iterable[str] | None = None,
    decode: Decode | None = None,
    on_bad: OnBad = "raise",
    dead_letter: DeadLetter | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    stdout: BinaryIO | None = None,
) -> ExportResult:
    """Write the records of a topic to a file.

    logs: an open LogManager, or a log.dir, which is opened read-only. target: the file, or "-" for `stdout`. form:
    parquet, arrow, csv or jsonl, if the name of the file does not show it; Parquet needs a file, "-" is JSON lines by
    default. partition: one of them, by default all. start, stop, isolation, decode, on_bad, dead_letter: as in
    Log.read; for several partitions an offset outside the range of one is moved to that one's start or end. columns:
    some of offset, timestamp, timestamp_type, key, value, headers, topic, partition; of JSON lines some of the fields
    of `klog cat --json`. overwrite: replace an existing file. progress: called with klog.progress.Event.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, UnknownFormat, FileExistsError, OSError, ValueError, ImportError;
    CorruptBatch, ReadFailed, BadValue, and then there is no file.
    """
    if not isinstance(logs, LogManager):
        logs = arguments.path("logs", logs)
    name, topic = arguments.path("target", target), arguments.text("topic", topic)
    form = _form(name, form)
    known = texts.JSON_FIELDS if form == "jsonl" else COLUMNS
    chosen = _chosen(columns, known)
    decoding: dict[str, Any] = {"decode": decode, "on_bad": on_bad, "dead_letter": dead_letter}
    start = None if start is None else checked_position("start", start)
    overwrite = arguments.flag("overwrite", overwrite)
    arguments.function("progress", progress)
    if (name == "-") != (stdout is not None):
        given = f"target={name!r}, stdout={arguments.shown(stdout)}"
        raise ValueError(f"{given}: '-' goes with stdout=, a binary file; pass both or none")
    with _opened(logs) as opened:
        numbers = opened.topics().get(topic, [0]) if partition is None else [partition]
        found = [opened.log(topic, number) for number in numbers]
        readers = {
            log.partition: log.read(_limited(start, log, found), stop, isolation=isolation, **decoding) for log in found
        }
        spans = {number: reader.ranges[0][1:] for number, reader in readers.items()}
        total = sum(last - first for first, last in spans.values())
        with _Stdout(stdout) if stdout is not None else NewFile(name, RealFiles(), overwrite=overwrite) as file:
            records = 0
            for records in _written(form, file, stdout is not None, topic, readers, chosen, decode):
                if progress is not None:
                    progress(Event("export", min(records, total), total))
            file.commit()
            size = file.tell()
    if progress is not None:
        progress(Event("export", total, total))
    return ExportResult(topic, name, form, records, size, spans)


def _written(
    form: str,
    file: Any,
    streams: bool,
    topic: str,
    readers: dict[int, LogReader],
    names: Sequence[str],
    decode: Decode | None,
) -> Iterator[int]:
    """Write the records. Yields how many have been written so far. streams: the file has no positions to seek."""
    if form == "jsonl":
        from klog.decode import formats_of

        decoded = [] if decode is None else list(formats_of(decode))
        yield from texts.write_json_lines(file, topic, readers, names, decoded)
        return
    pyarrow = pyarrow_for(f"an export to {form}")
    columns = Columns(topic, readers, names)
    if form == "parquet":
        yield from write_parquet(file, columns.schema, columns.batches())
    elif form == "csv":
        yield from texts.write_csv(file, columns)
    else:
        records = 0
        make = pyarrow.ipc.new_stream if streams else pyarrow.ipc.new_file
        with make(file, columns.schema) as writer:
            for batch in columns.batches():
                writer.write_batch(batch)
                records += batch.num_rows
                yield records


class _Stdout(io.RawIOBase):
    """Standard output with the interface of a NewFile."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._stream.write(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def commit(self) -> None:
        self._stream.flush()


@contextmanager
def _opened(logs: LogManager | str | os.PathLike[str]) -> Iterator[LogManager]:
    if isinstance(logs, LogManager):
        yield logs
    else:
        with open_directory(logs, read_only=True) as opened:
            yield opened


def _limited(start: Position | None, log: Log, logs: Sequence[Log]) -> Position | None:
    """Return the start for one of several partitions: an offset is moved into its range. Not if the offset is above the
    log ends of all: then Log.read raises."""
    if isinstance(start, int) and len(logs) > 1 and any(start <= each.log_end_offset for each in logs):
        return min(max(start, log.log_start_offset), log.log_end_offset)
    return start


def _form(name: str, form: str | None) -> str:
    if form is None:
        form = "jsonl" if name == "-" else _SUFFIXES.get(os.path.splitext(name)[1].lower())
    if not isinstance(form, str) or form not in FORMATS:
        given = f"format {arguments.shown(form)}" if form is not None else f"{name}: the name shows no format"
        raise UnknownFormat(f"{given}; choose from {', '.join(FORMATS)}")
    if form == "parquet" and name == "-":
        raise UnknownFormat("Parquet needs a file; name one, or choose arrow, csv or jsonl")
    return form


def _chosen(columns: Iterable[str] | None, known: Sequence[str]) -> list[str]:
    names = list(known) if columns is None else arguments.texts("columns", columns)
    for number, name in enumerate(names):
        if name not in known or name in names[:number]:
            problem = "is named twice" if name in known else "is unknown"
            raise ValueError(f"columns[{number}]={name!r} {problem}: choose from {', '.join(known)}")
    if not names:
        raise ValueError(f"columns=[]: choose from {', '.join(known)}")
    return names
