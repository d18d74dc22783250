import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.codec.varint import decode_varint, decode_varlong, encode_varint, encode_varlong
from klog.errors import CorruptBatch
from tests.support import reference

VECTORS = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-2, "03"),
    (63, "7e"),
    (64, "8001"),
    (-64, "7f"),
    (-65, "8101"),
    (127, "fe01"),
    (128, "8002"),
    (300, "d804"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
LONG_VECTORS = [
    (86400000, "80f0b252"),
    (-86400990, "bbffb252"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_varint_vectors(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_varint(value) == encode_varlong(value) == data
    assert decode_varint(data) == decode_varlong(data) == (value, len(data))


@pytest.mark.parametrize(("value", "text"), LONG_VECTORS)
def test_varlong_vectors(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_varlong(value) == data
    assert decode_varlong(data) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_varlong_round_trip(value: int, before: bytes) -> None:
    data = encode_varlong(value)
    assert data == reference.encode_varint(value)
    assert decode_varlong(before + data + b"\xff", len(before)) == (value, len(before) + len(data))


def test_longer_encodings_are_read() -> None:
    assert decode_varint(bytes.fromhex("8280808000")) == (1, 5)
    assert decode_varlong(bytes.fromhex("82808080808080808000")) == (1, 10)


@pytest.mark.parametrize("decode", [decode_varint, decode_varlong])
@pytest.mark.parametrize("size", range(5))
def test_a_truncated_varint(decode, size: int) -> None:
    with pytest.raises(CorruptBatch, match="end inside") as caught:
        decode(b"\x80" * size, 0)
    assert caught.value.position == 0


def test_an_endless_varint() -> None:
    with pytest.raises(CorruptBatch, match="varint is too long"):
        decode_varint(b"\x80" * 5 + b"\x00")
    with pytest.raises(CorruptBatch, match="varint is too long"):
        decode_varlong(b"\x80" * 10 + b"\x00")


def test_position_outside() -> None:
    for position in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            decode_varint(b"\x00\x00", position)
