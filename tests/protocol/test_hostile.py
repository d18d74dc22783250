"""Bytes that a correct peer does not send. Decoding raises CorruptFrame, or returns a message that is the same after a
round trip. It uses memory in proportion to the input."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptFrame
from klog.protocol import decode, encode, messages
from tests.support import wire
from tests.support.memory import left_bytes, peak_bytes

VERSIONS = list(wire.versions())
_AMPLIFICATION = 100
"""The most bytes of memory for a byte of input: an empty array takes one byte, and its list takes 56."""


def _check_round_trip(owner: Any, version: int, data: bytes) -> None:
    try:
        message = decode(owner, version, data)
    except CorruptFrame:
        return
    again = encode(message, version)
    assert encode(decode(owner, version, again), version) == again


def test_every_cut_is_an_error() -> None:
    chance = random.Random(29)
    for owner, layout, version in VERSIONS:
        data = encode(wire.make(owner, layout, version, chance), version)
        for size in range(max(0, len(data) - 300), len(data)):
            with pytest.raises(CorruptFrame) as caught:
                decode(owner, version, data[:size])
            assert caught.value.position is not None and 0 <= caught.value.position <= size


def test_every_flip_is_an_error_or_a_message() -> None:
    chance = random.Random(30)
    for owner, layout, version in VERSIONS:
        data = bytearray(encode(wire.make(owner, layout, version, chance), version))
        for at in range(min(len(data), 200)):
            kept, data[at] = data[at], chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << chance.randrange(8)))
            _check_round_trip(owner, version, bytes(data))
            data[at] = kept


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_random_bytes(case: Any, data: bytes) -> None:
    owner, _, version = case
    _check_round_trip(owner, version, data)


@pytest.mark.parametrize(
    ("owner", "version", "data", "text"),
    [
        (messages.Metadata.Request, 1, "7fffffff", "field topics: more elements than the remaining bytes can hold"),
        (messages.Metadata.Request, 1, "fffffffe", "field topics: a length is invalid"),
        (messages.Metadata.Request, 0, "ffffffff", "field topics: null is not allowed"),
        (messages.Metadata.Request, 9, "ffffffff0f", "field topics: a length is invalid"),
        (messages.Metadata.Request, 9, "ffffffff1f", "field topics: a varint is too long"),
        (messages.Metadata.Request, 9, "ffffffffff01", "field topics: a varint is too long"),
        (messages.Metadata.Request, 9, "0203fffe00", r"field topics\[0\].name: not valid UTF-8"),
        (messages.Metadata.Request, 9, "01000000ff01", "more elements than the remaining bytes can hold"),
        (messages.SaslHandshake.Request, 0, "fffe", "field mechanism: a length is invalid"),
        (messages.SaslHandshake.Request, 0, "7fff", "field mechanism: the bytes end inside a value"),
        (messages.ApiVersions.Request, 3, "0101020000" + "0000", "tags do not rise"),
        (
            messages.ApiVersions.Response,
            3,
            "0000010000000001010901000000000000000900",
            "field finalized_f.*: bytes are l",
        ),
    ],
)
def test_an_error_names_field_and_cause(owner: Any, version: int, data: str, text: str) -> None:
    with pytest.raises(CorruptFrame, match=text):
        decode(owner, version, bytes.fromhex(data))


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(messages.ApiVersions.Request(client_software_name="a"), 3)
    assert plain[-1:] == b"\0"
    tagged = plain[:-1] + b"\2" + b"\5\3abc" + b"\x80\x01\0"
    assert decode(messages.ApiVersions.Request, 3, tagged) == messages.ApiVersions.Request(client_software_name="a")


def _peak(owner: Any, version: int, data: bytes) -> int:
    def call() -> None:
        with contextlib.suppress(CorruptFrame):
            decode(owner, version, data)

    return peak_bytes(call)


def test_memory_is_proportional_to_the_bytes() -> None:
    size = 1 << 18
    entries = struct.pack(">ihB", 0, 0, 0) + b"\xff\xff\x03" + b"\1\1\0" * size
    quotas = messages.DescribeClientQuotas.Response
    texts = b"\xff\xff\x03" + b"\1" * size
    too_large = b"\0\1x\xff\xff\xff\x07" + bytes(64)
    for owner, version, data in (
        (quotas, 1, entries),
        (messages.FindCoordinator.Request, 4, texts),
        (messages.FindCoordinator.Request, 4, b"\0" + texts),
        (messages.ListTransactions.Request, 0, too_large),
        (messages.Metadata.Request, 1, b"\x7f\xff\xff\xff" + bytes(64)),
    ):
        _peak(owner, version, b"")  # compiles the program
        assert _peak(owner, version, data) < _AMPLIFICATION * len(data) + 10_000, owner


def test_memory_does_not_grow() -> None:
    chance = random.Random(31)
    lists = {"Fetch.Response": "responses", "Metadata.Response": "topics", "Produce.Request": "topic_data"}
    inputs = [
        (owner, version, lists[layout.name], encode(wire.make(owner, layout, version, chance), version))
        for owner, layout, version in VERSIONS
        if layout.name in lists
    ]

    def round_trips() -> None:
        for owner, version, name, data in inputs:
            message = decode(owner, version, data)
            encode(message, version)
            setattr(message, name, [object()])
            with pytest.raises(TypeError):
                encode(message, version)
            with pytest.raises(CorruptFrame):
                decode(owner, version, data[:-1])

    assert left_bytes(round_trips) < 8 * len(inputs)
