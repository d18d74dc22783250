"""scan() continues after damage. Each byte belongs to exactly one item, whatever the bytes are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.codec import crc32c
from klog.inspect import batches
from klog.inspect.batches import Broken, Found, batch_at, scan
from klog.inspect.files import ReadOnlyFile
from klog.record import encode
from tests.support.legacy_reference import Message, encode_message

BATCH = encode([(b"k", b"value")] * 3)


def _batch(offset: int) -> bytes:
    return encode([(b"k", b"value")] * 3, base_offset=offset)


def _scan(path: Path, data: bytes) -> list[batches.Item]:
    path.write_bytes(data)
    with ReadOnlyFile(str(path)) as file:
        items = list(scan(file))
    ends = [0, *(item.end for item in items)]
    assert [item.position for item in items] == ends[:-1]
    assert ends[-1] == len(data)
    return items


def test_valid_batches_are_separate_items(tmp_path: Path) -> None:
    items = _scan(tmp_path / "log", _batch(0) + _batch(3) + _batch(6))
    assert [item.batch.base_offset for item in items if isinstance(item, Found)] == [0, 3, 6]


def test_a_wrong_length_costs_one_batch(tmp_path: Path) -> None:
    middle = bytearray(_batch(3))
    middle[11] ^= 0x10
    items = _scan(tmp_path / "log", _batch(0) + middle + _batch(6))
    assert [type(item) for item in items] == [Found, Broken, Found]
    broken = items[1]
    assert isinstance(broken, Broken)
    assert (broken.position, broken.end, broken.torn) == (len(BATCH), 2 * len(BATCH), False)


def test_a_wrong_payload_keeps_its_frame(tmp_path: Path) -> None:
    middle = bytearray(_batch(3))
    middle[-1] ^= 1
    items = _scan(tmp_path / "log", _batch(0) + middle + _batch(6))
    assert [isinstance(item, Found) and item.error and item.error.kind for item in items] == [None, "crc", None]


@pytest.mark.parametrize("size", [1, 11, 12, 17, 60, len(BATCH) - 1])
def test_a_torn_tail_is_one_item(tmp_path: Path, size: int) -> None:
    items = _scan(tmp_path / "log", _batch(0) + _batch(3)[:size])
    assert [type(item) for item in items] == [Found, Broken]
    assert isinstance(items[1], Broken)
    assert items[1].torn


def test_zeros_are_distinguished_from_other_garbage(tmp_path: Path) -> None:
    items = _scan(tmp_path / "log", _batch(0) + bytes(5000))
    assert isinstance(items[1], Broken)
    assert items[1].zeros


def test_a_hostile_length_is_ignored(tmp_path: Path) -> None:
    """F3: a length larger than the file allocates nothing."""
    head = bytearray(_batch(3)[:61])
    head[8:12] = b"\x7f\xff\x00\x00"
    items = _scan(tmp_path / "log", _batch(0) + head)
    assert isinstance(items[1], Broken)
    assert "2147418124 bytes" in str(items[1].error)


def test_windows_may_cut_batches_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = encode([(None, b"x" * 3000)], base_offset=3)
    data = _batch(0) + large + _batch(4) + b"\x02" * 40 + _batch(7)
    expected = [type(item) for item in _scan(tmp_path / "log", data)]
    for window in (128, 200, 333, 1000):
        monkeypatch.setattr(batches, "WINDOW", window)
        assert [type(item) for item in _scan(tmp_path / "log", data)] == expected


def test_the_bytes_of_false_headers_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many headers look valid, and each needs a checksum of many bytes: without the budget, of 500 times the file."""
    false_header = bytearray(_batch(0)[:61])
    false_header[8:12] = (60_000).to_bytes(4, "big")
    data = bytes(false_header) * 2000
    checked = []

    def counted(part: bytes) -> int:
        checked.append(len(part))
        return crc32c(part)

    monkeypatch.setattr(batches, "WINDOW", 1000)
    monkeypatch.setattr(batches, "crc32c", counted)
    items = _scan(tmp_path / "log", data)
    assert [type(item) for item in items] == [Broken]
    assert 8 * len(data) < sum(checked) <= batches.RESYNC_FACTOR * len(data) + batches.WINDOW


class _Counting(ReadOnlyFile):
    """count: the bytes that were read."""

    count = 0

    def read_at(self, position: int, size: int) -> bytes:
        data = super().read_at(position, size)
        self.count += len(data)
        return data


def _old(offset: int) -> bytes:
    return encode_message(Message(offset % 2, offset, b"key", b"value"))


def _long(offset: int, magic: int, count: int) -> bytes:
    """An intact batch, then a header whose length is almost the rest of `count` such pairs."""
    head = bytearray(_batch(offset)[:61])
    rest = (len(BATCH) + len(head)) * (count - offset // 3) - len(BATCH) - 20
    head[8:12], head[16] = max(rest, 0).to_bytes(4, "big"), magic
    return _batch(offset) + head


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"".join(_long(3 * each, 2, 2000) for each in range(2000)), id="long batches"),
        pytest.param(b"".join(_long(3 * each, 1, 2000) for each in range(2000)), id="long old messages"),
        pytest.param(b"".join(map(_old, range(1000))), id="old messages"),
        pytest.param(b"".join(_batch(3 * each) + b"\x02" for each in range(1000)), id="damage"),
        pytest.param(b"".join(_batch(3 * each) + _old(each)[:-1] for each in range(1000)), id="cut old messages"),
    ],
)
@pytest.mark.parametrize("window", [2000, batches.WINDOW])
def test_the_bytes_of_many_items_are_read_a_few_times(
    data: bytes, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "WINDOW", window)
    (tmp_path / "log").write_bytes(data)
    with _Counting(str(tmp_path / "log")) as file:
        assert sum(item.end - item.position for item in scan(file)) == len(data)
        assert file.count < (batches.RESYNC_FACTOR + 8) * len(data) + batches.WINDOW


def test_one_batch_is_read_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"".join(_batch(3 * each) for each in range(1000)))
    with _Counting(str(tmp_path / "log")) as file:
        batch = batch_at(file, 5 * len(BATCH))
        assert batch is not None and batch.base_offset == 15
        assert file.count < 2 * len(BATCH)


@given(st.lists(st.one_of(st.binary(max_size=80), st.integers(0, 50).map(_batch), st.just(b"\x02" * 30)), max_size=8))
def test_any_bytes_can_be_scanned(parts: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        _scan(Path(folder) / "log", b"".join(parts))
