"""The output of DumpLogSegments, parsed.

    out     := ("Dumping " path  section)*
    .log    := "Log starting offset: N"  ("baseOffset: …" ("| offset: …")*)*  ["Found X invalid bytes at the end of …"]
    .index  := ("offset: O position: P")* | path " is empty."
    .timeindex := ("timestamp: T offset: O")*
    .snapshot, .txnindex := one line per entry

Every line must be understood: a line without a rule is an error, so no output of the tool is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DumpedRecord:
    offset: int
    timestamp_type: str
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: str  # joined by commas: [] may be no header or one with an empty name
    rest: str


@dataclass
class DumpedBatch:
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    records: list[DumpedRecord] = field(default_factory=list)


@dataclass
class Section:
    """One file of the dump. Only the list for its suffix is filled."""

    path: str
    starting_offset: int | None = None
    batches: list[DumpedBatch] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)
    invalid_bytes: int = 0
    lines: list[str] = field(default_factory=list)


BATCH = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+)"
    r" baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+)"
    r" producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+)"
    r" partitionLeaderEpoch: (?P<leader_epoch>-?\d+) isTransactional: (?P<tx>true|false)"
    r" isControl: (?P<control>true|false)"
    r" deleteHorizonMs: OptionalLong(?:\.empty|\[(?P<horizon>-?\d+)\]) position: (?P<position>\d+)"
    r" (?P<type>CreateTime|LogAppendTime|NoTimestampType): (?P<max_timestamp>-?\d+) size: (?P<size>\d+)"
    r" magic: (?P<magic>\d+) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: (?P<valid>true|false)"
)
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<type>CreateTime|LogAppendTime|NoTimestampType): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+)"
    r" headerKeys: \[(?P<headers>.*?)\](?P<rest>.*)",
    re.DOTALL,
)
INDEX = re.compile(r"offset: (\d+) position: (\d+)")
TIME_INDEX = re.compile(r"timestamp: (-?\d+) offset: (\d+)")
INVALID = re.compile(r"Found (\d+) invalid bytes at the end of .*")
LABELS = {"CreateTime": "create", "LogAppendTime": "append", "NoTimestampType": "none"}


def parse(text: str) -> list[Section]:
    sections: list[Section] = []
    for line in text.split("\n"):
        if line.startswith("Dumping "):
            sections.append(Section(line.removeprefix("Dumping ")))
        elif line:
            _line(sections[-1], line)
    return sections


def _line(section: Section, line: str) -> None:
    section.lines.append(line)
    if found := RECORD.fullmatch(line):
        section.batches[-1].records.append(_record(found))
    elif found := BATCH.fullmatch(line):
        section.batches.append(_batch(found))
    elif line.startswith("Log starting offset: "):
        section.starting_offset = int(line.rsplit(" ", 1)[1])
    elif found := INDEX.fullmatch(line) or TIME_INDEX.fullmatch(line):
        section.entries.append((int(found[1]), int(found[2])))
    elif found := INVALID.fullmatch(line):
        section.invalid_bytes = int(found[1])
    elif line != f"{section.path} is empty." and not section.path.endswith((".snapshot", ".txnindex")):
        raise ValueError(f"{section.path}: no rule matches the line: {line!r}")


def _batch(found: re.Match[str]) -> DumpedBatch:
    return DumpedBatch(
        base_offset=int(found["base_offset"]),
        last_offset=int(found["last_offset"]),
        count=int(found["count"]),
        base_sequence=int(found["base_sequence"]),
        last_sequence=int(found["last_sequence"]),
        producer_id=int(found["producer_id"]),
        producer_epoch=int(found["producer_epoch"]),
        leader_epoch=int(found["leader_epoch"]),
        is_transactional=found["tx"] == "true",
        is_control=found["control"] == "true",
        delete_horizon_ms=None if found["horizon"] is None else int(found["horizon"]),
        position=int(found["position"]),
        timestamp_type=LABELS[found["type"]],
        max_timestamp=int(found["max_timestamp"]),
        size=int(found["size"]),
        magic=int(found["magic"]),
        codec=found["codec"],
        crc=int(found["crc"]),
        is_valid=found["valid"] == "true",
    )


def _record(found: re.Match[str]) -> DumpedRecord:
    return DumpedRecord(
        offset=int(found["offset"]),
        timestamp_type=LABELS[found["type"]],
        timestamp=int(found["timestamp"]),
        key_size=int(found["key_size"]),
        value_size=int(found["value_size"]),
        sequence=int(found["sequence"]),
        header_keys=found["headers"],
        rest=found["rest"].strip(),
    )
