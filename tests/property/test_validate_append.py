"""The leader's validator and the slow model agree: the same errors for any buffer, the same valid batches."""

from __future__ import annotations

import dataclasses

from hypothesis import example, given
from hypothesis import strategies as st

from klog.errors import CorruptBatch, InvalidRecord, InvalidTimestamp
from klog.record import ValidatedBatch, decode, validate, validate_append
from tests.support import leader_reference
from tests.support.leader_reference import Refusal, Taken
from tests.support.produced import Produced, produced, reseal

FIELDS = ("producer_id", "producer_epoch", "base_sequence")
seeds = st.integers(0, 2**32)


def check(case: Produced) -> str:
    """Run both on the case and compare their results. Return the result."""
    wanted: Taken | Refusal
    try:
        wanted = leader_reference.take(case)
    except Refusal as refusal:
        wanted = refusal
    got: ValidatedBatch | InvalidRecord | InvalidTimestamp | CorruptBatch
    try:
        got = validate_append(case.data, case.config, **case.options)
    except (InvalidRecord, InvalidTimestamp, CorruptBatch) as error:
        got = error
    if isinstance(wanted, Refusal) and not isinstance(got, ValidatedBatch):
        numbers = tuple(item.batch_index for item in getattr(got, "record_errors", ()))
        assert (wanted.kind, wanted.numbers, wanted.meters) == (type(got).__name__, numbers, dict(got.meters))
        return wanted.kind
    assert isinstance(wanted, Taken) and isinstance(got, ValidatedBatch), (wanted, got)
    return compare(case, wanted, got)


def compare(case: Produced, wanted: Taken, taken: ValidatedBatch) -> str:
    (batch,) = decode(taken)
    count = len(wanted.rows)
    assert (taken.first_offset, taken.last_offset, taken.count) == (case.offset, case.offset + count - 1, count)
    assert (batch.base_offset, batch.count, batch.leader_epoch) == (case.offset, count, case.leader_epoch)
    assert (batch.attributes & 0xFFFF, batch.compression) == (wanted.attributes, wanted.codec)
    assert (batch.base_timestamp, batch.max_timestamp) == (wanted.first_timestamp, wanted.max_timestamp)
    assert taken.max_timestamp == wanted.max_timestamp
    assert taken.log_append_time == (case.now if case.stamped else -1)
    assert taken.message_size_maybe_changed == wanted.changed
    assert taken.conversion_count == (count if wanted.changed else 0)
    assert tuple(getattr(batch, name) for name in FIELDS) == wanted.producer
    if wanted.payload is not None:
        assert bytes(taken)[61:] == wanted.payload
    if batch.is_control:  # keys of control batches are not checked
        return "taken"
    assert validate(taken) == count
    times = [case.now if case.stamped else row.timestamp for row in wanted.rows]
    assert [(r.key, r.value, r.timestamp, r.headers) for r in batch] == [
        (row.key, row.value, time, row.headers) for row, time in zip(wanted.rows, times, strict=True)
    ]
    return "taken"


@given(seeds)
def test_the_model_agrees_on_produced_batches(seed: int) -> None:
    check(produced(seed))


@given(
    seeds, st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 7)), max_size=3), st.integers(0, 40), st.booleans()
)
@example(0, [(61, 0)], 0, True)
def test_the_model_agrees_on_damaged_batches(seed: int, flips: list[tuple[int, int]], cut: int, sealed: bool) -> None:
    """sealed: the checksum is recomputed after the damage, so that later checks find it."""
    case = produced(seed)
    data = bytearray(case.data)
    for at, bit in flips:
        data[at % len(data)] ^= 1 << bit
    whole = bytes(data[: max(0, len(data) - cut)])
    if sealed and len(whole) >= 61 and case.data[16] == 2:
        whole = reseal(whole)
    check(dataclasses.replace(case, data=whole))


def test_the_cases_cover_every_kind() -> None:
    results = [check(produced(seed)) for seed in range(400)]
    assert {kind: results.count(kind) > 10 for kind in ("taken", "InvalidRecord", "InvalidTimestamp", "CorruptBatch")} == {
        "taken": True, "InvalidRecord": True, "InvalidTimestamp": True, "CorruptBatch": True,
    }  # fmt: skip


def test_every_cut_and_every_flip_of_small_buffers() -> None:
    small = [case for case in map(produced, range(60)) if len(case.data) < 260]
    assert len(small) > 8
    for case in small[:8]:
        for cut in range(len(case.data)):
            check(dataclasses.replace(case, data=case.data[:cut]))
        for bit in range(8 * len(case.data)):
            data = bytearray(case.data)
            data[bit // 8] ^= 1 << bit % 8
            check(dataclasses.replace(case, data=bytes(data)))
            if case.data[16] == 2 and bit >= 21 * 8:
                check(dataclasses.replace(case, data=reseal(bytes(data))))
