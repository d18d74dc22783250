"""The grammar of the text files. Kafka's files are read; other text is reported with its position."""

from __future__ import annotations

import pytest

from klog.errors import CorruptCheckpoint
from klog.inspect.texts import (
    parse_audit,
    parse_checkpoint,
    parse_clean_shutdown,
    parse_epochs,
    parse_json,
    parse_partition_metadata,
    parse_properties,
)

ID = "AAECAwQFBgcICQoLDA0ODw"


def test_checkpoints_are_read() -> None:
    assert parse_checkpoint(b"0\n2\ndemo 0 105\nother-topic 3 0\n") == [("demo", 0, 105), ("other-topic", 3, 0)]
    assert parse_checkpoint(b"0\r\n1\r\ndemo 0 105\r\n") == [("demo", 0, 105)]
    assert parse_checkpoint(b"") == parse_checkpoint(b"0\n") == parse_checkpoint(b"0\n0\n") == []


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"1\n0\n", 0, "version 1"),
        (b"x\n0\n", 0, "version 'x'"),
        (b"0\n2\na 0 1\n", 2, "1 entries, but line 2 states 2"),
        (b"0\n1\na 0\n", 4, "3 fields"),
        (b"0\n1\na 0 1 2\n", 4, "3 fields"),
        (b"0\n1\na  0 1\n", 4, "3 fields"),
        (b"0\n1\na 0 99999999999999999999\n", 4, "64-bit"),
        (b"0\n1\na 4294967296 1\n", 4, "32-bit"),
        (b"0\n1\na 0 -1\n", 4, "negative"),
        (b"0\n2\na 0 1\na 0 2\n", 10, "twice"),
        (b"0\n1\na 0 1\n\n", 10, "3 fields"),
        (b"0\n99999999999\n", 2, "entry count"),
        (b"0\n1\n\xff 0 1\n", 4, "UTF-8"),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", 4, "64-bit"),
    ],
)
def test_an_invalid_checkpoint_raises_with_its_line(data: bytes, position: int, message: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=message) as caught:
        parse_checkpoint(data, "file")
    assert (caught.value.path, caught.value.position, caught.value.kind) == ("file", position, "checkpoint")


def test_epochs_rise_in_both_columns() -> None:
    assert parse_epochs(b"0\n2\n0 0\n4 260\n") == [(0, 0), (4, 260)]
    for broken in (b"0\n2\n4 0\n4 260\n", b"0\n2\n0 10\n4 10\n", b"0\n1\n-1 0\n"):
        with pytest.raises(CorruptCheckpoint) as caught:
            parse_epochs(broken)
        assert caught.value.kind == "epoch"


def test_partition_metadata() -> None:
    assert parse_partition_metadata(f"version: 0\ntopic_id: {ID}".encode()) == (0, ID)
    for broken in (
        b"",
        b"version: 0",
        b"version 0\ntopic_id: " + ID.encode(),
        b"version: 1\ntopic_id: " + ID.encode(),
        b"version: 0\ntopic_id: " + b"A" * 22,  # the zero id
        b"version: 0\ntopic_id: " + ID[:-1].encode(),
        b"version: 0\ntopic_id: " + ID[:-1].encode() + b"x",  # non-zero bits beyond 16 bytes
        b"version: 0\ntopic_id: " + ID.encode() + b"\nmore",
    ):
        with pytest.raises(CorruptCheckpoint):
            parse_partition_metadata(broken)


def test_meta_properties_and_the_clean_shutdown_file() -> None:
    text = b"#\n#Sat Nov 21\nnode.id=1\nversion=1\ncluster.id=abc\n"
    assert parse_properties(text) == {"node.id": "1", "version": "1", "cluster.id": "abc"}
    for broken in (b"version=7\n", b"version=1\nnode.id=1\n", b"version=1\ncluster.id=a\nnode.id=x\n", b"words\n"):
        with pytest.raises(CorruptCheckpoint):
            parse_properties(broken)
    assert parse_clean_shutdown(b"") is None
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":-1}') == {"version": 0, "brokerEpoch": -1}
    for broken in (b"[]", b"{", b'{"version":1,"brokerEpoch":5}', b'{"version":0}', b"[" * 100_000):
        with pytest.raises(CorruptCheckpoint):
            parse_clean_shutdown(broken)


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_a_number_that_json_cannot_write_is_an_error(number: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_json(b'{"version":0,"more":[%b]}' % number)
    with pytest.raises(CorruptCheckpoint):
        parse_audit(b'{"version":1,"outcome":"done","more":%b}\n' % number)
