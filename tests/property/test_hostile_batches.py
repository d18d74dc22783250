"""A valid buffer is cut at any position, or any bit of it is flipped. Readers return a valid prefix or raise CorruptBatch.

A flip in the 12 bytes outside the checksum may change an offset or an epoch. No other exception is raised, and nothing is
read out of bounds: the sanitizer build runs this file too.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptBatch
from klog.record import columns, decode, encode, iter_records, validate
from klog.record.control import marker
from tests.support import reference
from tests.support.damage import VARINT_HUGE, flip, mutate, mutations
from tests.support.memory import peak_bytes
from tests.support.strategies import record_lists

T = 1_700_000_000_000
RECORDS = [(b"k", b"v" * 9, T, [("h", b"x"), ("n", None)]), (None, b"hello", T + 5), (b"", None, -1)]
COMPRESSIONS = [None, "gzip", "snappy", "lz4", "zstd"]


def buffer_of(compression: str | None) -> bytes:
    return b"".join(
        (
            encode(RECORDS, base_offset=10, leader_epoch=1),
            encode(RECORDS, base_offset=13, leader_epoch=1, compression=compression),
            encode([(*marker("commit", 3), T)], base_offset=16, is_control=True, producer_id=1, producer_epoch=0),
        )
    )


def reseal(data: bytes) -> bytes:
    """Return one batch with a length and a checksum that match its bytes."""
    return reference.seal(data[:8] + data[12:16], data[21:])


def read(data: bytes) -> tuple[list, bool]:
    """Return the records, and whether the end was reached without an error. A changed delta may give an offset below 0."""
    got = []
    position = None
    try:
        for record in iter_records(data, start=-(2**63), include_control=True):
            got.append(record)
    except CorruptBatch as error:
        position = error.position
    if position is None:
        return got, True
    assert 0 <= position <= len(data)
    return got, False


def without_offset(records: list) -> list:
    return [(r.key, r.value, r.timestamp, r.headers, r.is_control) for r in records]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_truncation_at_any_byte(compression: str | None) -> None:
    data = buffer_of(compression)
    ends = [batch.position + batch.size for batch in decode(data)]
    whole, _ = read(data)
    counts = {0: 0, ends[0]: 3, ends[1]: 6, ends[2]: 7}
    for cut in range(len(data)):
        boundary = max(end for end in counts if end <= cut)
        got, complete = read(data[:cut])
        assert complete
        assert got == whole[: counts[boundary]]
        assert columns(data[:cut], include_control=True).num_rows == counts[boundary]
        assert sum(batch.count for batch in decode(data[:cut], allow_partial=True)) == counts[boundary]
        if cut not in counts:
            for function in (validate, lambda piece: list(decode(piece))):
                with pytest.raises(CorruptBatch) as caught:
                    function(data[:cut])
                assert caught.value.position == boundary


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_flip_any_bit(compression: str | None) -> None:
    data = buffer_of(compression)
    whole, _ = read(data)
    starts = [batch.position for batch in decode(data)]
    for at in range(len(data)):
        start = max(position for position in starts if position <= at)
        before = {0: 0, starts[1]: 3, starts[2]: 6}[start]
        for bit in range(8):
            broken = flip(data, at, bit)
            got, complete = read(broken)
            assert got[:before] == whole[:before]
            outside = at - start < 8 or 12 <= at - start < 16
            if outside and complete:
                assert without_offset(got) == without_offset(whole)[: len(got)]
            elif complete:  # a longer length: read as a partial batch
                assert 8 <= at - start < 12
                assert got == whole[:before]
            else:
                assert got == whole[:before]
            if not outside:
                with pytest.raises(CorruptBatch):
                    validate(broken)
            with contextlib.suppress(CorruptBatch):
                assert columns(broken, start=-(2**63), include_control=True).num_rows == len(got)
                assert complete


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_flip_any_bit_under_a_valid_checksum(compression: str | None) -> None:
    """A valid checksum does not prove that a correct producer wrote the batch."""
    data = encode(RECORDS * 2, base_offset=10, compression=compression)
    for at in range(21, len(data)):
        for bit in range(8):
            broken = reseal(flip(data, at, bit))
            got, complete = read(broken)
            try:
                assert columns(broken, start=-(2**63), include_control=True).num_rows == len(got)
                assert complete
            except CorruptBatch:
                assert not complete
            with contextlib.suppress(CorruptBatch):
                validate(broken)
                assert complete


@given(record_lists, mutations(), st.integers(-1, 1))
def test_the_reference_agrees_on_validity(records: list, steps: list, miscount: int) -> None:
    data = encode(records)
    count = (len(records) + miscount).to_bytes(4, "big")
    broken = reseal(data[:57] + count + mutate(data[61:], steps, huge=VARINT_HUGE, replaces=1))
    got, complete = read(broken)
    try:
        want = reference.all_records(reference.decode(broken))
    except reference.Malformed:
        assert not complete
        with pytest.raises(CorruptBatch):
            columns(broken)
    else:
        assert complete
        assert [(r.key, r.value, r.timestamp, r.headers, r.offset) for r in got] == [
            (r.key, r.value, r.timestamp, r.headers, r.offset) for r in want
        ]
        assert columns(broken, start=-(2**63)).num_rows == len(want)


@given(record_lists, mutations(), st.sampled_from(COMPRESSIONS[1:]))
def test_modified_codec_streams(records: list, steps: list, compression: str) -> None:
    data = encode(records, compression=compression)
    broken = reseal(data[:61] + mutate(data[61:], steps, huge=VARINT_HUGE, replaces=1))
    got, complete = read(broken)
    try:
        assert columns(broken, start=-(2**63)).num_rows == len(got)
        assert complete
    except CorruptBatch:
        assert not complete


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    for function in (validate, lambda piece: list(decode(piece)), lambda piece: list(iter_records(piece)), columns):
        with contextlib.suppress(CorruptBatch):
            function(data)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_invalid_counts_allocate_no_memory(compression: str | None) -> None:
    data = encode(RECORDS, compression=compression)
    broken = reseal(data[:57] + b"\x7f\xff\xff\xff" + data[61:])
    list(iter_records(data))

    def refuse() -> None:
        for function in (validate, lambda piece: list(iter_records(piece)), columns):
            with pytest.raises(CorruptBatch):
                function(broken)

    assert peak_bytes(refuse) < 1 << 20
