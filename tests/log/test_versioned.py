"""klog's own JSON files carry a checksum: a changed bit gives an error, or the same content."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptCheckpoint, NewerFormat
from klog.log.directory import versioned
from tests.support.batches import NOW
from tests.support.damage import flip

DOCUMENT = {"version": 1, "name": "flights", "positions": {"0": 17}, "ready": True, "config": {"retention.ms": -1}}


def parsed(data: bytes, version: int = 1) -> object:
    return versioned.parse(data, "file.json", version)


@pytest.mark.parametrize("indent", [None, 1])
def test_each_changed_bit_is_an_error_or_changes_nothing(indent: int | None) -> None:
    data = versioned.encode(DOCUMENT, indent)
    assert parsed(data) == DOCUMENT
    for at in range(len(data)):
        for bit in range(8):
            try:
                found = parsed(flip(data, at, bit))
            except (*versioned.MALFORMED, NewerFormat):
                continue
            assert isinstance(found, dict)
            assert {name: found.get(name) for name in DOCUMENT} == DOCUMENT


def test_a_file_without_a_checksum_is_read() -> None:
    assert parsed(b'{"version": 1, "name": "x"}') == {"version": 1, "name": "x"}


def test_a_newer_version_is_refused_by_name_whatever_its_checksum() -> None:
    with pytest.raises(NewerFormat):
        parsed(versioned.encode({"version": 2}))
    with pytest.raises(NewerFormat):
        parsed(versioned.encode(DOCUMENT).replace(b'"version": 1', b'"version": 2'))


def test_the_error_states_how_to_accept_an_edited_file() -> None:
    data = versioned.encode(DOCUMENT).replace(b"17", b"18")
    with pytest.raises(ValueError, match='remove "crc32c" to accept it'):
        parsed(data)


def test_a_position_or_a_setting_with_a_changed_bit_is_refused(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", config={"retention.ms": 100_000})
        logs.append("t", [(None, b"%d" % number) for number in range(30)])
        reader = logs.reader("t", "billing")
        assert len(list(reader)) == 30
        reader.commit()
        reader.close()
        positions = tmp_path / "klog-reader.billing.json"
        positions.write_bytes(positions.read_bytes().replace(b'"0": 30', b'"0": 31'))
        with pytest.raises(CorruptCheckpoint, match="checksum"):
            list(logs.reader("t", "billing"))
    topics = tmp_path / "klog-topics.json"
    topics.write_bytes(topics.read_bytes().replace(b"100000", b"100001"))
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        klog.open(tmp_path)
    assert {problem.path for problem in klog.verify(tmp_path).problems} == {str(positions), str(topics)}
