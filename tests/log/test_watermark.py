"""The high watermark: its rules alone, and as a log keeps it."""

from __future__ import annotations

import pytest

from klog.log import watermark
from klog.log.watermark import OffsetMetadata

A, B = OffsetMetadata(5, 0, 300), OffsetMetadata(12, 10, 100)
ALONE = OffsetMetadata(5)


def test_metadata_compares_only_what_it_knows() -> None:
    assert ALONE.is_message_only
    assert not A.is_message_only
    assert A.on_older_segment(B)
    assert not B.on_older_segment(A)
    assert A.on_same_segment(OffsetMetadata(7, 0, 400))
    assert OffsetMetadata(7, 0, 400).position_diff(A) == 100
    with pytest.raises(ValueError, match="different segments"):
        B.position_diff(A)
    for compare in (OffsetMetadata.on_older_segment, OffsetMetadata.on_same_segment, OffsetMetadata.position_diff):
        for pair in ((A, ALONE), (ALONE, A)):
            with pytest.raises(ValueError, match="only the offset is known"):
                compare(*pair)


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 10), (0, 10), (-7, 10), (15, 15), (20, 20), (99, 20)])
def test_a_checkpoint_is_not_trusted_beyond_the_log(checkpoint: int | None, expected: int) -> None:
    assert watermark.initial(checkpoint, 10, 20) == expected


def test_an_update_stays_in_the_log() -> None:
    assert [watermark.updated(offset, 10, 20) for offset in (0, 10, 15, 20, 21)] == [10, 10, 15, 20, 20]
    with pytest.raises(ValueError, match="none is negative"):
        watermark.updated(-1, 10, 20)


def test_a_leader_only_moves_on() -> None:
    rolled = OffsetMetadata(5, 5, 0)
    assert watermark.increments(A, B, 12)
    assert not watermark.increments(B, A, 12)
    assert not watermark.increments(A, A, 12)
    assert watermark.increments(A, rolled, 12)
    assert not watermark.increments(rolled, A, 12)
    with pytest.raises(ValueError, match="beyond the log end"):
        watermark.increments(A, B, 11)


def test_a_follower_says_what_changed() -> None:
    assert [watermark.followed(99, offset, 0, 100) for offset in (99, 100, 101, 7)] == [None, 100, 100, 7]
    assert watermark.followed(100, 101, 0, 100) is None
