"""Fuzz targets over the small files of a log.dir, the texts of configurations, and names.

Bytes become values or raise the parser's own error; values that are written again are read as the same values.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import struct
from collections.abc import Callable
from typing import Any

from klog.config import LogConfig, ManagerConfig
from klog.config.properties import format_properties, parse_properties
from klog.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    CorruptSnapshot,
    InvalidConfig,
    NewerFormat,
)
from klog.log.directory import reader_positions, versioned
from klog.log.directory.checkpoint import (
    encode_uuid,
    format_epochs,
    format_lines,
    format_metadata,
    parse_epochs,
    parse_metadata,
    parse_offsets,
)
from klog.log.directory.partition_names import is_partition, parse_directory_name, parse_suffixed_name
from klog.log.staged import manifest, streams
from klog.log.state.snapshots import format_snapshot, parse_snapshot
from klog.manager import topics
from klog.segment.names import file_name, parse_name
from klog.segment.txn_index import ENTRY_BYTES, collect_aborted, parse_txn_index

_OWN: tuple[tuple[int, Callable[[bytes, str], Any]], ...] = (
    (reader_positions.VERSION, reader_positions.decode),
    (topics.VERSION, topics.decode),
    (manifest.VERSION, manifest.decode),
    (streams.VERSION, lambda data, path: streams.decode(data, path, "query")),
)


def snapshot_target(data: bytes) -> None:
    with contextlib.suppress(CorruptSnapshot):
        producers = parse_snapshot(data, "fuzz.snapshot")
        assert parse_snapshot(format_snapshot(producers), "again") == producers


def checkpoint_target(data: bytes) -> None:
    """Each parser of Kafka's text files. With a space before its last line feed, or with CR line ends, a file means the
    same, but is no longer one that the quick parser of plain files takes. A topic id has the text that it was read
    from, whose last character has bits that no byte uses."""
    if b"\r" not in data and data.endswith(b"\n") and data.count(b"\n") > 2:
        for parse in (parse_offsets, parse_epochs):
            plain = _outcome(parse, data)
            assert plain == _outcome(parse, data[:-1] + b" \n") == _outcome(parse, data.replace(b"\n", b"\r"))
    with contextlib.suppress(CorruptCheckpoint):
        offsets = parse_offsets(data, "fuzz-checkpoint")
        assert parse_offsets(format_lines((*key, offset) for key, offset in offsets.items()), "again") == offsets
    with contextlib.suppress(CorruptCheckpoint):
        epochs = parse_epochs(data, "fuzz-checkpoint")
        assert parse_epochs(format_epochs(epochs), "again") == epochs
    with contextlib.suppress(CorruptCheckpoint):
        topic_id = parse_metadata(data, "partition.metadata")
        assert encode_uuid(topic_id)[:21].encode() in data
        assert parse_metadata(format_metadata(topic_id), "again") == topic_id


def _outcome(parse: Callable[[bytes, str], Any], data: bytes) -> Any:
    try:
        return parse(data, "fuzz-checkpoint")
    except CorruptCheckpoint:
        return CorruptCheckpoint


def txnindex_target(data: bytes) -> None:
    """fetch_offset:i64 upper_bound:i64 entry*: what a fetch takes are the entries that touch its range, up to the first
    one that says that there are no more."""
    if len(data) < 16:
        return
    (low, high), file = struct.unpack_from(">qq", data), data[16:]
    try:
        entries = parse_txn_index(file, "fuzz.txnindex")
    except CorruptIndex:
        return
    assert len(entries) == len(file) // ENTRY_BYTES
    assert all(one.last_offset < next_one.last_offset for one, next_one in itertools.pairwise(entries))
    again = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)
    assert parse_txn_index(again + file[len(again) :], "again") == entries
    found, complete = collect_aborted(entries, low, high)
    stop = entries.index(found[-1]) if found else -1
    touching = [each for each in entries if each.last_offset >= low and each.first_offset < high]
    assert found == (touching[: len(found)] if complete else touching)
    assert not complete or any(high <= each.last_stable_offset for each in entries[max(stop, 0) :])


def own_target(data: bytes) -> None:
    """kind:u8 document: klog's own JSON files. An even kind gives the document a matching checksum."""
    if not data:
        return
    version, decode = _OWN[data[0] // 2 % len(_OWN)]
    document = data[1:]
    if not data[0] & 1:
        with contextlib.suppress(*versioned.MALFORMED, NewerFormat):
            document = versioned.encode(versioned.parse(document, "fuzz.json", version))
    with contextlib.suppress(CorruptCheckpoint, NewerFormat):
        found = decode(document, "klog-commit.token.json")
        plain = versioned.parse(document, "fuzz.json", version)
        assert decode(versioned.encode(plain, indent=1), "klog-commit.token.json") == found


def texts_target(data: bytes) -> None:
    """kind:u8 text: a properties file, the configuration in it, or a name."""
    if not data:
        return
    text = data[1:].decode("utf-8", "replace")
    match data[0] & 3:
        case 0:
            _properties(data[1:].decode("latin-1"))
            half = len(text) // 2
            _written({text[:half]: text[half:]})
        case 1:
            _configured(parse_properties(data[1:].decode("latin-1")))
        case _:
            _named(text)


def _properties(text: str) -> None:
    values = parse_properties(text)
    assert parse_properties(format_properties(values)) == values


def _written(values: dict[str, str]) -> None:
    text = format_properties(values)
    assert text.isascii()
    assert parse_properties(text) == values


def _configured(values: dict[str, str]) -> None:
    """A configuration that is accepted is written as properties, and read as an equal one."""
    for kind in (LogConfig, ManagerConfig):
        logging.getLogger("klog.config").setLevel(logging.CRITICAL)
        try:
            config = kind(values)
        except InvalidConfig:
            continue
        again = kind(parse_properties(config.to_properties()))
        assert again == config and again.given == config.given


def _named(text: str) -> None:
    """A name that is accepted is the one that klog makes of its parts."""
    found = parse_name(text)
    assert found is None or file_name(*found) == text
    partition = parse_directory_name(text)
    assert partition is None or (is_partition(*partition) and "{}-{}".format(*partition) == text)
    topic, dash, number = text.rpartition("-")
    if dash and number.isascii() and number.isdecimal() and len(number) < 20 and str(int(number)) == number:
        assert (partition is not None) == is_partition(topic, int(number))
    suffixed = parse_suffixed_name(text)
    assert suffixed is None or (partition is None and text.endswith(f"-{suffixed.suffix}"))
