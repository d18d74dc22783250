"""Hypothesis strategies for records and batches."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.reference import ReferenceBatch, ReferenceRecord

COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd", ("gzip", 1), ("lz4", 9), ("lz4", 12), ("zstd", 19), ("zstd", -5))

maybe_bytes = st.none() | st.binary(max_size=200)
# Header keys as read: any text, with invalid UTF-8 bytes as lone low surrogates.
header_keys = st.binary(max_size=20).map(lambda key: key.decode("utf-8", "surrogateescape"))
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=40)), max_size=4).map(tuple)
timestamps = st.just(-1) | st.integers(0, 2**63 - 1) | st.integers(1_600_000_000_000, 1_800_000_000_000)
tuples = st.tuples(maybe_bytes, maybe_bytes, timestamps, headers)
record_lists = st.lists(tuples, min_size=1, max_size=20)


@st.composite
def reference_batches(draw: st.DrawFn, *, codecs: tuple[int, ...] = (0, 1)) -> ReferenceBatch:
    """A batch as a log may hold it: gaps after compaction, any attributes except control, any producer."""
    base_offset = draw(st.integers(0, 2**40) | st.integers(2**63 - 2**33, 2**63 - 2**31 - 1))
    deltas = sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=12)))
    batch = ReferenceBatch(
        base_offset=base_offset,
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        attributes=draw(st.sampled_from(codecs)) | draw(st.sampled_from((0, 8))) | draw(st.sampled_from((0, 16, 64))),
        last_offset_delta=draw(st.integers(deltas[-1] if deltas else 0, 2**31 - 1)),
        base_timestamp=draw(st.integers(-(2**63), 2**63 - 1)),
        max_timestamp=draw(st.integers(-(2**63), 2**63 - 1)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
    )
    for delta in deltas:
        key, value, _, record_headers = draw(tuples)
        timestamp = batch.max_timestamp if batch.attributes & 8 else draw(st.integers(-(2**63), 2**63 - 1))
        batch.records.append(ReferenceRecord(key, value, timestamp, record_headers, base_offset + delta))
    return batch
