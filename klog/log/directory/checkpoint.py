"""Kafka's text files: the four offset checkpoints of a log.dir, the leader epochs of a partition, partition.metadata,
the clean-shutdown marker.

    checkpoint := "0\\n" count "\\n" (entry "\\n")*         entry: "topic partition offset", or "epoch start_offset"

A file that breaks this grammar raises CorruptCheckpoint; the caller decides what to do. As in Kafka, lines may end with
CR, numbers may have a sign and zeros, and of two offsets of a partition the last one counts.
Kafka: CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile, CleanShutdownFileHandler.
"""

from __future__ import annotations

import binascii
import contextlib
import functools
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping

from klog.arguments import shown
from klog.config.properties import parse_properties
from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint, InconsistentTopicId
from klog.log.directory.partition_names import TOPIC
from klog.segment.names import METADATA

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NAMES = (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER, CLEAN_SHUTDOWN)
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_RENAMED = CLEAN_SHUTDOWN + ".aside"  # while a Log.open writes in the log.dir (standalone.py)

Partition = tuple[str, int]
_INT = re.compile(r"[+-]?\d{1,19}")
_LINE_END = re.compile(r"\r\n|\n|\r")
_ID = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")
_DIGITS_MAX = 19  # a number of fewer digits fits into 64 bits
_TO_URLSAFE, _FROM_URLSAFE = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_PLAIN_OFFSETS = re.compile(rf"0\n([0-9]{{1,10}})\n((?:{TOPIC.pattern} [0-9]{{1,9}} [0-9]{{1,18}}\n)*+)".encode())
_PLAIN_EPOCHS = re.compile(rb"0\n(\d{1,9})\n((?:\d{1,9} \d{1,18}\n)*)")


def parse_lines(data: bytes, path: str, fields: int) -> list[list[str]]:
    """The entries of a checkpoint as text fields. None for an empty file or one with only a version."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("not UTF-8 text", path=path, position=error.start) from None
    lines = _LINE_END.split(text)
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    if not lines:
        return []
    if not _INT.fullmatch(lines[0]) or int(lines[0]) != 0:
        raise CorruptCheckpoint(f"version {lines[0][:20]!r} in line 1, 0 expected", path=path, position=0)
    if len(lines) == 1:
        return []
    if fields == 2 and len(lines) > 2 and not ended:  # the last number may lack digits; of offsets a lower one is safe
        raise CorruptCheckpoint("the last line is truncated", path=path, position=len(data))
    if not _INT.fullmatch(lines[1]) or not 0 <= int(lines[1]) < 2**31:
        raise CorruptCheckpoint(f"count {lines[1][:20]!r} in line 2 is not a number", path=path, position=2)
    entries = []
    for number, line in enumerate(lines[2:], 3):
        parts = line.split()
        if len(parts) != fields:
            raise CorruptCheckpoint(f"{fields} fields expected in line {number}, got {line[:80]!r}", path=path)
        entries.append(parts)
    if len(entries) != int(lines[1]):
        raise CorruptCheckpoint(f"{lines[1]} entries expected, {len(entries)} found", path=path)
    return entries


def format_lines(entries: Iterable[tuple[object, ...]]) -> bytes:
    """The bytes of a checkpoint of these entries."""
    lines = [" ".join(map(str, entry)) + "\n" for entry in entries]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def _numbers(path: str, **texts: str) -> list[int]:
    for what, text in texts.items():
        if not (text.isdecimal() and len(text) < _DIGITS_MAX) and (
            not _INT.fullmatch(text) or not -(2**63) <= int(text) < 2**63
        ):
            raise CorruptCheckpoint(f"{what} {text[:30]!r} is not a 64-bit number", path=path)
    return list(map(int, texts.values()))


def parse_offsets(data: bytes, path: str) -> dict[Partition, int]:
    """{(topic, partition): offset} of an offset checkpoint's bytes."""
    plain = _PLAIN_OFFSETS.fullmatch(data)  # as every writer formats it: there may be thousands of partitions
    if plain is not None:
        words = plain[2].decode().split()
        partitions = zip(words[::3], map(int, words[1::3]), strict=True)
        found = dict(zip(partitions, map(int, words[2::3]), strict=True))
        if len(found) == int(plain[1]) == len(words) // 3:
            return found
    offsets: dict[Partition, int] = {}
    for topic, partition, offset in parse_lines(data, path, 3):
        number, value = _numbers(path, partition=partition, offset=offset)
        offsets[topic, number] = value
    return offsets


_parsed_offsets = functools.lru_cache(4)(parse_offsets)


def read_offsets(path: str) -> Mapping[Partition, int]:
    """{(topic, partition): offset} of an offset checkpoint file, not to be changed; empty if there is none.

    The file is read, but not parsed again as long as it is the same: each log that is opened alone, or by a reader,
    asks for one entry.
    """
    try:
        return _parsed_offsets(read_whole(path), path)
    except FileNotFoundError:
        return {}


def known_offsets(path: str) -> Mapping[Partition, int]:
    """The same; a malformed file counts as empty, as in a load."""
    with contextlib.suppress(CorruptCheckpoint):
        return read_offsets(path)
    return {}


def write_offsets(files: Files, path: str, offsets: dict[Partition, int]) -> None:
    """Replace an offset checkpoint, durably."""
    files.replace(path, format_lines((*partition, offset) for partition, offset in sorted(offsets.items())))


def parse_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """[(epoch, start offset)] of a leader-epoch-checkpoint's bytes, in file order."""
    plain = _PLAIN_EPOCHS.fullmatch(data)  # as every writer formats it: each load of a log reads one
    if plain is not None:
        numbers = list(map(int, plain[2].split()))
        if len(numbers) == 2 * int(plain[1]):
            return list(zip(numbers[::2], numbers[1::2], strict=True))
    entries = []
    for epoch, start in parse_lines(data, path, 2):
        number, offset = _numbers(path, epoch=epoch, offset=start)
        if not (0 <= number < 2**31 and offset >= 0):
            raise CorruptCheckpoint(
                f"epoch {epoch} at offset {start}: neither may be negative", path=path, kind="epoch"
            )
        entries.append((number, offset))
    return entries


def format_epochs(entries: list[tuple[int, int]]) -> bytes:
    """The bytes of a leader-epoch-checkpoint."""
    return format_lines(entries)


def parse_metadata(data: bytes, path: str) -> uuid.UUID:
    """The topic id of a partition.metadata's bytes."""
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2:
        raise CorruptCheckpoint("two lines expected: version and topic_id", path=path)
    fields = [re.split(r":\s+", line) for line in lines[:2]]
    if any(len(field) != 2 for field in fields) or not fields[0][1].isdigit():
        raise CorruptCheckpoint("'version: 0' and 'topic_id: <22 characters>' expected", path=path)
    topic_id = decode_uuid(fields[1][1].strip())
    if topic_id is None or topic_id.int == 0:
        raise CorruptCheckpoint(f"topic id {fields[1][1][:40]!r} is not valid", path=path)
    return topic_id


def format_metadata(topic_id: uuid.UUID) -> bytes:
    """The bytes of a partition.metadata."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's text form of an id: 16 bytes as URL-safe base64, 22 characters."""
    return binascii.b2a_base64(value.int.to_bytes(16), newline=False).translate(_TO_URLSAFE)[:22].decode()


def decode_uuid(text: str) -> uuid.UUID | None:
    """The id of Kafka's text form; None if the text is not valid."""
    found = _ID.fullmatch(text)
    if found is None:
        return None
    return uuid.UUID(bytes=binascii.a2b_base64((found[1] + "==").encode().translate(_FROM_URLSAFE)))


METADATA_TOPIC_ID = uuid.UUID(int=1)  # of the log __cluster_metadata. Kafka: Uuid.METADATA_TOPIC_ID


def as_uuid(value: uuid.UUID | str | None) -> uuid.UUID | None:
    """A topic's id, given as UUID or in Kafka's text form. Raises ValueError, also for the zero id, which stands for
    none: a broker does not load a partition with it."""
    if value is None:
        return None
    parsed = decode_uuid(value) if isinstance(value, str) else value
    if not isinstance(parsed, uuid.UUID):
        raise ValueError(f"topic_id={shown(value)}: a uuid.UUID or Kafka's 22 characters expected")
    if parsed.int == 0:
        raise ValueError(f"topic_id={value!r}: Kafka reserves this id; None chooses one")
    return parsed


def clean_shutdown_path(directory: str) -> str:
    """Path of the clean-shutdown marker."""
    return os.path.join(directory, CLEAN_SHUTDOWN)


CLEAN_SHUTDOWN_TEXT = b'{"version":0,"brokerEpoch":-1}'
_MARKER_BYTES_MAX = 4096


def clean_shutdown_text(path: str) -> bytes:
    """The text to restore for the marker at `path`: its own, or CLEAN_SHUTDOWN_TEXT if that is not valid.

    A broker writes its epoch there. If the epoch is missing at its next start, the controller assumes that the broker
    lost data and removes it from every ISR; partitions without another replica wait for an unclean election.
    Kafka: CleanShutdownFileHandler, KIP-966.
    """
    with contextlib.suppress(OSError, ValueError):
        text = read_whole(path, _MARKER_BYTES_MAX)[:_MARKER_BYTES_MAX]
        found = json.loads(text)
        if isinstance(found, dict) and type(found.get("version")) is int and type(found.get("brokerEpoch")) is int:
            return text
    return CLEAN_SHUTDOWN_TEXT


def meta_properties(directory: str) -> dict[str, str]:
    """The entries of meta.properties, which a broker writes in its log.dirs; {} if there is none. Raises OSError."""
    try:
        return parse_properties(read_whole(f"{directory}/{META_PROPERTIES}").decode("latin-1"))
    except FileNotFoundError:
        return {}


def read_topic_id(directory: str) -> uuid.UUID | None:
    """The topic id of a partition directory; None if partition.metadata is missing or invalid."""
    return _topic_id_in(_read_metadata(directory), directory)


def _read_metadata(directory: str) -> bytes:
    """The bytes of partition.metadata, none if it is missing."""
    try:
        return read_whole(f"{directory}/{METADATA}")
    except FileNotFoundError:
        return b""


def _topic_id_in(data: bytes, directory: str) -> uuid.UUID | None:
    with contextlib.suppress(CorruptCheckpoint):
        return parse_metadata(data, os.path.join(directory, METADATA))
    return None


def check_topic_id(path: str, wanted: uuid.UUID | None) -> bool:
    """Raise InconsistentTopicId if partition.metadata has another topic id. Returns whether it has this one."""
    if wanted is None:
        return False
    data = _read_metadata(path)
    if data == format_metadata(wanted):
        return True
    stored = _topic_id_in(data, path)
    if stored is not None and stored != wanted:
        raise InconsistentTopicId(
            f"{path} belongs to topic id {encode_uuid(stored)}, not {encode_uuid(wanted)}: "
            f"the topic was created again, or the directory belongs to another cluster"
        )
    return stored is not None
