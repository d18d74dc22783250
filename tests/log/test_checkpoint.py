"""Kafka's text files: strict reading, exact writing."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from klog.disk import RealFiles
from klog.errors import CorruptCheckpoint
from klog.log.directory import checkpoint


def test_offset_checkpoints_round_trip(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    offsets = {("demo", 0): 105, ("a-b", 12): 2**63 - 1, ("x", 1): -1}
    checkpoint.write_offsets(RealFiles(), path, offsets)
    assert checkpoint.read_offsets(path) == offsets
    checkpoint.write_offsets(RealFiles(), path, {("demo", 0): 105})
    assert Path(path).read_bytes() == bytes.fromhex("300a310a64656d6f2030203130350a")
    checkpoint.write_offsets(RealFiles(), path, {})
    assert Path(path).read_bytes() == b"0\n0\n"
    assert checkpoint.read_offsets(str(tmp_path / "none")) == {}


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n", b"0\n0"])
def test_files_without_entries(data: bytes) -> None:
    assert checkpoint.parse_offsets(data, "x") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"0\n1\na  0\t5\n",
        b"0\n1\na 0 5 \n",
        b"0\r\n1\r\na 0 5\r\n",
        b"0\r1\ra 0 5\r",
        b"0\n1\na 0 +5\n",
        b"+0\n+01\na 00 5\n",
        b"0\n1\na 0 5",
        b"0\n2\na 0 6\na 0 5\n",
    ],
)
def test_lenient_forms_that_kafka_reads_are_accepted(data: bytes) -> None:
    """Of two lines the last one counts. A log start that is not read would bring deleted records back."""
    assert checkpoint.parse_offsets(data, "x") == {("a", 0): 5}


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"1\n0\n", "version '1' in line 1"),
        (b" 0\n0\n", "version"),
        (b"\n", "version ''"),
        (b"0\nx\n", "count 'x' in line 2"),
        (b"0\n-1\n", "count"),
        (b"0\n 1\na 0 5\n", "count"),
        (b"0\n99999999999\n", "count"),
        (b"0\n2\na 0 5\n", "2 entries expected, 1 found"),
        (b"0\n0\na 0 5\n", "0 entries expected, 1 found"),
        (b"0\n1\na 0\n", "3 fields expected in line 3"),
        (b"0\n1\na 0 5 6\n", "3 fields expected"),
        (b"0\n1\na 0 5\n\n", "3 fields expected in line 4"),
        (b"0\n1\na x 5\n", "partition 'x'"),
        (b"0\n1\na 0 5.0\n", "offset '5.0'"),
        (b"0\n1\na 0 9223372036854775808\n", "not a 64-bit number"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_invalid_checkpoints_are_refused(data: bytes, match: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=match) as caught:
        checkpoint.parse_offsets(data, "somewhere")
    assert (caught.value.path, caught.value.kind) == ("somewhere", "checkpoint")


def test_epoch_checkpoints_round_trip() -> None:
    entries = [(0, 0), (5, 100)]
    assert checkpoint.format_epochs(entries) == b"0\n2\n0 0\n5 100\n"
    assert checkpoint.parse_epochs(checkpoint.format_epochs(entries), "x") == entries
    for data in (b"0\n1\n5 10", b"0\n1\n-1 0\n", b"0\n1\n1 -5\n", b"0\n1\n2147483648 0\n", b"0\n1\n1 2 3\n"):
        with pytest.raises(CorruptCheckpoint):
            checkpoint.parse_epochs(data, "x")


KAFKA_ID = uuid.UUID(bytes=bytes(range(16)))


def test_partition_metadata_round_trips() -> None:
    data = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoint.format_metadata(KAFKA_ID) == data
    assert checkpoint.parse_metadata(data, "x") == KAFKA_ID
    assert checkpoint.parse_metadata(b"x: 0\nx:   AAECAwQFBgcICQoLDA0ODw\nmore", "x") == KAFKA_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0O",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA/ODw",  # one bit from -
        b"version: 0\ntopic_id: " + b"A" * 22,
        b"version: 0\ntopic_id: \xff",
    ],
)
def test_invalid_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoint.parse_metadata(data, "x")


def test_topic_ids_are_written_as_in_kafka() -> None:
    assert checkpoint.encode_uuid(KAFKA_ID) == "AAECAwQFBgcICQoLDA0ODw"
    assert checkpoint.as_uuid("AAECAwQFBgcICQoLDA0ODw") == checkpoint.as_uuid(KAFKA_ID) == KAFKA_ID
    assert checkpoint.as_uuid(None) is None
    random = uuid.uuid4()
    assert checkpoint.decode_uuid(checkpoint.encode_uuid(random)) == random
    assert checkpoint.decode_uuid(checkpoint.encode_uuid(random) + "==") == random
    foreign = ("A" * 21 + "+", "AAECAwQFBgcICQoLDA0ODw!!!!", "AAECAwQFBgcICQoLDA0ODw=", " AAECAwQFBgcICQoLDA0ODw===")
    for text in ("", "x", "AAECAwQFBgcICQoLDA0ODwAA", "\u00e4" * 22, *foreign):
        assert checkpoint.decode_uuid(text) is None
        with pytest.raises(ValueError, match="Kafka's 22 characters"):
            checkpoint.as_uuid(text)
