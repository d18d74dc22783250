"""Encoded batches as a log passes them to a segment: one record each, all of the same size."""

from __future__ import annotations

from collections.abc import Sequence

from klog.record import BatchGroup, Encoder

BATCH = 68  # bytes of a batch of one record with null key and null value


def group_of(timestamps: Sequence[int], first_offset: int = 0, leader_epoch: int = 0) -> BatchGroup:
    """A batch of BATCH bytes for each timestamp, with offsets from first_offset on."""
    encoder = Encoder(
        [(None, None, timestamp) for timestamp in timestamps],
        batch_bytes_max=BATCH,
        message_bytes_max=BATCH,
        timestamp_default=0,
        timestamp_min=-(2**62),
        timestamp_max=2**62,
    )
    group = encoder.next_group(2**40)
    assert group is not None
    assert group.nbytes == BATCH * len(timestamps)
    group.assign(first_offset, leader_epoch)
    return group
