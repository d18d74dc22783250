"""Loads a file into a topic. If the file has an error, the topic is not changed.

Two passes. The first reads every row and checks all that append would reject: text, columns, times against the topic's
bounds, null keys in a compacted topic, size. Only then is a topic created and are records appended; the second pass
reads the same bytes again. Memory is bounded in both: rows are streamed, and standard input is kept in a temporary
file. Only the disk can fail in the second pass; the error then states how many records were appended.

A new topic gets retention.ms=-1 unless configured otherwise, so that retention does not delete old records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from klog import arguments
from klog.clock import Clock, SystemClock
from klog.codec import parse_compression
from klog.config import LogConfig, config_values
from klog.errors import InvalidConfig, InvalidRecord, RecordTooLarge
from klog.importing.errors import RowError, UnknownFormat
from klog.importing.rows import rows
from klog.importing.source import FORMATS, Source
from klog.importing.values import Row
from klog.log.options import Compression, check_tools
from klog.manager import LogManager, open_directory
from klog.manager.topic_life import checked_partitions
from klog.manager.topics import check_topic_name
from klog.progress import Event, Progress
from klog.record import encode
from klog.shown import iso
from klog.values import dataclass, field

EVERY_ROWS = 5000
RECORD_OVERHEAD = 128  # of a batch with one record: 61 header bytes and varints, rounded up


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of import_file. partitions: {partition: (first offset, next offset)} of the new records."""

    topic: str
    created: bool
    records: int
    null_keys: int
    min_timestamp: int | None
    max_timestamp: int | None
    partitions: dict[int, tuple[int, int]] = field(default_factory=dict)


def import_file(
    path: str | os.PathLike[str],
    logs: LogManager | str | os.PathLike[str],
    topic: str,
    *,
    key: str | None = None,
    timestamp: str | None = None,
    partitions: int | None = None,
    compression: Compression = None,
    config: Mapping[str, Any] | None = None,
    form: str | None = None,
    progress: Progress | None = None,
    stdin: BinaryIO | None = None,
    clock: Clock | None = None,
) -> ImportResult:
    """Append every row of a CSV, JSON lines or Parquet file (also .gz; "-" is standard input) to a topic.

    path: the file. form: csv, tsv, jsonl or parquet, if its name and first bytes do not show it. logs: an open
    LogManager, or a directory, which is created if it does not exist. key, timestamp: names of columns; without
    timestamp, records get the time of the append. partitions, config: for a new topic (default 1, and retention.ms=-1);
    for an existing topic they must not differ from what it has. Rows and values: klog.importing.rows.

    Raises RowError, UnknownColumn, UnknownFormat, InvalidConfig, InvalidPartitions, InvalidTopic: then nothing was
    created or appended; OSError, after which a note of the error has the number of appended records.
    """
    if form is not None and not (isinstance(form, str) and form in FORMATS):
        raise UnknownFormat(f"format {arguments.shown(form)}: choose from {', '.join(FORMATS)}")
    if compression is not None:
        parse_compression(compression)
    wanted = LogConfig(config_values("config", config))
    path = arguments.path("path", path)
    if not isinstance(logs, LogManager):
        logs = arguments.path("logs", logs)
    topic = check_topic_name(topic)
    key = None if key is None else arguments.text("key", key)
    timestamp = None if timestamp is None else arguments.text("timestamp", timestamp)
    partitions = None if partitions is None else checked_partitions("partitions", partitions)
    arguments.function("progress", progress)
    check_tools(clock, None)
    if stdin is not None:
        arguments.having("stdin", stdin, ("read",), "a binary file")
    clock = clock or SystemClock()
    with Source(path, stdin=stdin) as source:
        job = _Job(
            source, form or source.format(), topic, key, timestamp, partitions, compression, wanted, progress, clock
        )
        if isinstance(logs, LogManager):
            return job.run(logs)
        if not os.path.isdir(logs):
            job.check(job.new_config())  # first, so that a bad file does not leave a new directory
        with open_directory(logs, create=True, clock=clock) as opened:
            return job.run(opened)


@dataclass(slots=True)
class _Job:
    """One import: check, then append. One thread."""

    source: Source
    form: str
    topic: str
    key: str | None
    timestamp: str | None
    partitions: int | None
    compression: Any
    config: LogConfig
    progress: Progress | None
    clock: Clock
    checked: _Check | None = None

    def new_config(self) -> LogConfig:
        """Return the configuration of a topic to be created."""
        return LogConfig({"retention.ms": -1, **self.config.given})

    def rows(self, stage: str) -> Iterator[Row]:
        """Yield all rows, and report progress."""
        found = rows(self.source, self.form, key=self.key, timestamp=self.timestamp)
        return _reported(found, self.source, stage, self.progress)

    def check(self, config: LogConfig) -> _Check:
        """Run the first pass."""
        checked = _Check(self.source, config, now_ms=self.clock.wall_ms(), compression=self.compression)
        for row in self.rows("check"):
            checked.row(row)
        self.checked = checked
        return checked

    def run(self, logs: LogManager) -> ImportResult:
        """Run both passes, or only the second if the first is done."""
        created = self.topic not in logs.topics()
        config = self.new_config() if created else self._existing(logs)
        checked = self.checked or self.check(config)
        if created:
            logs.create_topic(self.topic, partitions=self.partitions or 1, config=config)
        before = {number: logs.log(self.topic, number).log_end_offset for number in logs.topics()[self.topic]}
        self._append(logs, checked, before)
        return ImportResult(
            topic=self.topic,
            created=created,
            records=checked.records,
            null_keys=checked.null_keys,
            min_timestamp=checked.min_timestamp,
            max_timestamp=checked.max_timestamp,
            partitions={
                number: (start, logs.log(self.topic, number).log_end_offset) for number, start in before.items()
            },
        )

    def _append(self, logs: LogManager, checked: _Check, before: dict[int, int]) -> None:
        if not checked.records:
            return
        timed = self.timestamp is not None
        records = ((key, value, ms) if timed else (key, value) for _, key, value, ms in self.rows("append"))
        try:
            logs.append(self.topic, records, compression=self.compression)
        except BaseException as error:
            kept = sum(logs.log(self.topic, number).log_end_offset - start for number, start in before.items())
            error.add_note(f"{kept} of {checked.records} records were appended to {self.topic} before that")
            raise

    def _existing(self, logs: LogManager) -> LogConfig:
        """Return the topic's configuration. Raises InvalidConfig if the caller gives a different one."""
        there, topic = len(logs.topics()[self.topic]), self.topic
        if self.partitions is not None and self.partitions != there:
            raise InvalidConfig(
                f"topic {topic!r} exists with {there} partitions; leave out --partitions, or name another topic"
            )
        has = logs.topic_config(topic)
        for name, value in self.config.given.items():
            if has[name] != value:
                raise InvalidConfig(
                    f"topic {topic!r} exists with {name}={has[name]}; leave out that setting, or name another topic"
                )
        return has


class _Check:
    """The first pass: counts rows and rejects those that append would reject. One thread."""

    def __init__(self, source: Source, config: LogConfig, *, now_ms: int, compression: Any) -> None:
        self._source, self._compression = source, compression
        self._size_max: int = config["max.message.bytes"]
        self._keyed = config.compacts
        self._timestamp_min = now_ms - int(config["message.timestamp.before.max.ms"])
        self._timestamp_max = now_ms + int(config["message.timestamp.after.max.ms"])
        if config["message.timestamp.type"] == "LogAppendTime":
            self._timestamp_min, self._timestamp_max = -(1 << 63), (1 << 63) - 1
        self.records = self.null_keys = 0
        self.min_timestamp: int | None = None
        self.max_timestamp: int | None = None

    def row(self, row: Row) -> None:
        line, key, value, ms = row
        self.records += 1
        if key is None:
            self.null_keys += 1
            if self._keyed:
                raise self._refused(line, "no key: a compacted topic takes no record without a key")
        if len(value) + len(key or b"") + RECORD_OVERHEAD > self._size_max:
            self._large(line, key, value)
        if ms is None:
            return
        if not self._timestamp_min <= ms <= self._timestamp_max:
            bound = "message.timestamp.after.max.ms" if ms > self._timestamp_max else "message.timestamp.before.max.ms"
            raise self._refused(line, f"time {iso(ms)} is outside the topic's bounds; raise {bound} with --config")
        if self.min_timestamp is None or ms < self.min_timestamp:
            self.min_timestamp = ms
        if self.max_timestamp is None or ms > self.max_timestamp:
            self.max_timestamp = ms

    def _large(self, line: int, key: bytes | None, value: bytes) -> None:
        """Check a record near the size limit by encoding it: compression may make it small enough."""
        try:
            size = len(encode([(key, value, 0)], compression=self._compression))
        except (InvalidRecord, RecordTooLarge) as error:
            raise self._refused(line, str(error)) from error
        if size > self._size_max:
            raise self._refused(
                line, f"a record of {size} bytes; raise max.message.bytes={self._size_max} with --config"
            )

    def _refused(self, line: int, message: str) -> RowError:
        return RowError(message, path=self._source.name, line=line)


def _reported(of: Iterator[Row], source: Source, stage: str, progress: Progress | None) -> Iterator[Row]:
    """Yield the rows, and report progress every EVERY_ROWS rows and at the end."""
    if progress is None:
        yield from of
        return
    count = 0
    for row in of:
        if count % EVERY_ROWS == 0:
            progress(Event(stage, source.position, source.size, "bytes", f"{count} rows"))
        count += 1
        yield row
    progress(Event(stage, source.size, source.size, "bytes", f"{count} rows"))
