"""dump: the content of any file of a log directory as values, entry by entry.

dump(path) yields one DumpedFile per file: for a directory its files in order of name, for a log.dir those of its
partitions, too. A DumpedFile's `entries` is an iterator: read it once, before the next file. Unreadable data becomes an
entry {"type": "problem", ...}; dump continues after damage. The keys of entries are stable; bytes are shown as `key`,
`value` if they are UTF-8, and as `key_b64`, `value_b64` if not.

    kind of file       entries
    log                {"type": "batch", ...}, each with its "records" if requested; {"type": "legacy"} for a wrapper
                       of magic 0 or 1 that cannot be read
    index              {"type": "offset_entry", "offset", "position"}
    timeindex          {"type": "time_entry", "timestamp", "offset"}
    txnindex           {"type": "aborted_transaction", "producer_id", "first_offset", "last_offset",
                       "last_stable_offset"}
    snapshot           {"type": "producer", ...}
    checkpoint         {"type": "offset", "topic", "partition", "offset"}
    epochs             {"type": "epoch", "epoch", "start_offset"}
    gaps               {"type": "gap", "end", "base_offset"}
    audit              {"type": "audit", "content": {...}}
    partition_metadata, properties, clean_shutdown, topics, positions, staged, move, quorum_state, broker
                       {"type": "document", "content": {...}}; keys of users are left out
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from klog import arguments
from klog.disk import exists, is_directory
from klog.errors import CorruptBatch, CorruptData
from klog.inspect.batches import Broken, Found, Legacy, scan
from klog.inspect.entries import IndexFile, parse_offset_index, parse_snapshot, parse_time_index, parse_txn_index
from klog.inspect.files import (
    FileName,
    ReadOnlyFile,
    classify,
    moved_name,
    names_in,
    partition_name,
    read_small,
    topic_of,
)
from klog.inspect.record_fields import TIMESTAMP_TYPES, record_fields
from klog.inspect.remote import RemoteFiles, is_url
from klog.inspect.texts import (
    parse_audit,
    parse_checkpoint,
    parse_epochs,
    parse_gaps,
    parse_json,
    parse_partition_metadata,
    parse_properties,
    without_keys,
)
from klog.record import RecordBatch
from klog.values import dataclass, replace

Entry = dict[str, Any]


@dataclass(slots=True)
class DumpedFile:
    """One file. kind: see above, or "unknown". base_offset: of a segment's file. leftover: deleted, cleaned, swap or
    tmp."""

    path: str
    kind: str
    size: int
    base_offset: int | None
    leftover: str | None
    entries: Iterator[Entry]


def dump(path: str | os.PathLike[str], *, records: bool = True, raw: bool = False) -> Iterator[DumpedFile]:
    """Yield the files of a partition directory or a log.dir, or one file. records=False: only the headers of
    batches. raw=True: the records of Kafka's internal topics are not decoded.

    path may be a URL, such as s3://bucket/flights-0: its files are copied to a temporary directory before the first one
    is yielded. The copy is removed when the iteration ends: read the entries of each file before. That needs pyarrow.
    Raises OSError, ImportError without pyarrow, ValueError for an unknown URL."""
    where = arguments.path("path", path)
    records, raw = arguments.flag("records", records), arguments.flag("raw", raw)
    return _of_url(RemoteFiles(where), records, raw) if is_url(where) else _of_path(where, records, raw)


def _of_url(remote: RemoteFiles, records: bool, raw: bool) -> Iterator[DumpedFile]:
    with remote.copied() as local:
        for file in _of_path(local, records, raw):
            yield replace(file, path=remote.shown + file.path[len(local) :])


def _of_path(where: str, records: bool, raw: bool) -> Iterator[DumpedFile]:
    if not is_directory(where):
        if not exists(where, follow_symlinks=False):
            raise FileNotFoundError(errno.ENOENT, "no such file; name a log.dir, a partition or a file of one", where)
        yield _file(where, records, raw)
        return
    directories = []
    for name in names_in(where):
        whole = os.path.join(where, name)
        if is_directory(whole, follow_symlinks=False):
            if partition_name(name) or moved_name(name):
                directories.append(whole)
        else:
            yield from _listed(whole, records, raw)
    for directory in directories:
        names: list[str] = []
        with suppress(FileNotFoundError):  # a topic was deleted meanwhile
            names = names_in(directory)
        for name in names:
            yield from _listed(os.path.join(directory, name), records, raw)


def _listed(path: str, records: bool, raw: bool) -> Iterator[DumpedFile]:
    """Yield a file of a directory, unless a writer has removed it meanwhile."""
    if classify(os.path.basename(path)).kind != "unknown":
        try:
            found = _file(path, records, raw)
        except FileNotFoundError:
            return
        yield found


def _file(path: str, records: bool, raw: bool) -> DumpedFile:
    what = classify(os.path.basename(path))
    size = os.lstat(path).st_size
    return DumpedFile(path, what.kind, size, what.base_offset, what.leftover, _entries(path, what, records, raw))


def _entries(path: str, what: FileName, records: bool, raw: bool) -> Iterator[Entry]:
    try:
        if what.kind == "log":
            yield from _log_entries(path, records, None if raw else topic_of(path))
        else:
            yield from _small_entries(path, what, read_small(path))
    except CorruptData as error:
        yield problem(error)
    except PermissionError:
        if what.kind != "broker":
            raise
        yield problem(CorruptData("only its owner may read it", path=path))
    except FileNotFoundError:
        if exists(path, follow_symlinks=False):  # a link to a file that does not exist
            raise


def problem(error: CorruptData) -> Entry:
    """Return an error as an entry."""
    return {
        "type": "problem",
        "kind": error.kind,
        "message": error.reason,
        "position": error.position,
        "offset": error.offset,
    }


def _small_entries(path: str, what: FileName, data: bytes) -> Iterator[Entry]:
    base = what.base_offset or 0
    match what.kind:
        case "index":
            parsed = parse_offset_index(data, base)
            for entry in parsed.entries:
                yield {"type": "offset_entry", "offset": entry.offset, "position": entry.position}
            yield from _rest(parsed)
        case "timeindex":
            parsed = parse_time_index(data, base)
            for entry in parsed.entries:
                yield {"type": "time_entry", "timestamp": entry.timestamp, "offset": entry.offset}
            yield from _rest(parsed)
        case "txnindex":
            for txn in parse_txn_index(data, path):
                yield {
                    "type": "aborted_transaction",
                    "producer_id": txn.producer_id,
                    "first_offset": txn.first_offset,
                    "last_offset": txn.last_offset,
                    "last_stable_offset": txn.last_stable_offset,
                }
        case "snapshot":
            for producer in parse_snapshot(data, path):
                yield {
                    "type": "producer",
                    **{
                        name: getattr(producer, name)
                        for name in producer.__slots__
                        if name != "current_txn_first_offset"
                    },
                    "current_txn_first_offset": (
                        None if producer.current_txn_first_offset < 0 else producer.current_txn_first_offset
                    ),
                }
        case "checkpoint":
            for topic, partition, offset in parse_checkpoint(data, path):
                yield {"type": "offset", "topic": topic, "partition": partition, "offset": offset}
        case "epochs":
            for epoch, start in parse_epochs(data, path):
                yield {"type": "epoch", "epoch": epoch, "start_offset": start}
        case "partition_metadata":
            version, topic_id = parse_partition_metadata(data, path)
            yield {"type": "document", "content": {"version": version, "topic_id": topic_id}}
        case "gaps":
            for end, base_offset in parse_gaps(data, path):
                yield {"type": "gap", "end": end, "base_offset": base_offset}
        case "properties":
            yield {"type": "document", "content": parse_properties(data, path)}
        case "audit":
            for entry in parse_audit(data, path):
                yield {"type": "audit", "content": entry}
        case "clean_shutdown" | "topics" | "positions" | "staged" | "move" | "quorum_state":
            yield {"type": "document", "content": parse_json(data, path)}
        case "broker":
            yield {"type": "document", "content": without_keys(parse_json(data, path))}
        case "lock":
            yield {"type": "document", "content": data.decode(errors="replace")}
        case _:
            raise CorruptData("not the name of a file of a log directory", path=path)


def _rest(parsed: IndexFile) -> Iterator[Entry]:
    if parsed.stray is not None:
        yield {
            "type": "problem",
            "kind": "index",
            "message": "bytes after the first unused entry, expected zeros",
            "position": parsed.stray,
            "offset": None,
        }
    elif parsed.tail:
        yield {"type": "unused", "position": parsed.used, "size": parsed.tail}


# ---- record logs -----------------------------------------------------------------------------------------------


def _log_entries(path: str, records: bool, topic: str | None) -> Iterator[Entry]:
    with ReadOnlyFile(path) as file:
        for item in scan(file):
            if isinstance(item, Found):
                yield _batch_entry(item, records, topic)
            elif isinstance(item, Legacy):
                yield {
                    "type": "legacy",
                    "position": item.position,
                    "size": item.end - item.position,
                    "magic": item.magic,
                    "offset": item.offset,
                    "valid": item.valid,
                }
            else:
                yield {
                    **problem(item.error),
                    "position": item.position,
                    "size": item.end - item.position,
                    **_tail(item),
                }


def _tail(item: Broken) -> Entry:
    return {"torn": item.torn, "zeros": item.zeros}


def _batch_entry(item: Found, records: bool, topic: str | None) -> Entry:
    batch = item.batch
    entry = {
        "type": "batch",
        **batch_fields(batch),
        "position": item.position,
        "valid": item.error is None,
        "error": None if item.error is None else item.error.reason,
    }
    if records:
        listed: list[Entry] = []
        entry["records"] = listed
        if item.error is None or item.error.kind != "crc":
            try:
                listed.extend(record_fields(record, topic) for record in batch)
            except CorruptBatch:
                pass  # item.error is that damage
    return entry


def batch_fields(batch: RecordBatch) -> Entry:
    """Return the header fields of a batch."""
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "size": batch.size,
        "magic": batch.magic,
        "crc": batch.crc,
        "compression": batch.compression,
        "timestamp_type": TIMESTAMP_TYPES[batch.timestamp_type],
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
    }
