import pytest

from klog.errors import CorruptBatch
from klog.record.control import CONTROL_TYPES, control_type, marker, marker_coordinator_epoch


def test_markers() -> None:
    assert marker("abort", 12) == (bytes.fromhex("00000000"), bytes.fromhex("00000000000c"))
    assert marker("commit", -1) == (bytes.fromhex("00000001"), bytes.fromhex("0000ffffffff"))
    for name in ("abort", "commit"):
        key, value = marker(name, 7)
        assert control_type(key) == name
        assert marker_coordinator_epoch(value) == 7
    with pytest.raises(ValueError, match="'abort' or 'commit'"):
        marker("leader_change", 1)


def test_types_by_number() -> None:
    for number, name in enumerate(CONTROL_TYPES):
        assert control_type(bytes((0, 0, 0, number))) == name
    assert control_type(bytes.fromhex("0000 0007")) == "unknown"
    assert control_type(bytes.fromhex("0000 ffff")) == "unknown"


def test_newer_versions_and_longer_keys_are_read() -> None:
    assert control_type(bytes.fromhex("0005 0001 ffff")) == "commit"
    assert marker_coordinator_epoch(bytes.fromhex("0003 00000009 ffff")) == 9


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", bytes.fromhex("ffff0000")])
def test_invalid_keys(key: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        control_type(key)


@pytest.mark.parametrize("value", [None, bytes(5), bytes.fromhex("ffff00000000")])
def test_invalid_marker_values(value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        marker_coordinator_epoch(value)
