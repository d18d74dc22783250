"""Where a stream goes on in each partition, and what it can no longer read. Pure.

    offsets of the last batch, partitions as they are now, ids of the topics and leader epochs as they were
        ──► positions, losses

  D1  A partition that the offsets do not name begins at its log start: a new topic is read from its first record.
  D2  Lost are: a partition that is gone; one of a topic that was deleted and created again (its id has changed);
      offsets below the log start; offsets above the log end; and those that a later leader has written again: its epoch
      begins below the position, whose last record was of an earlier one (KIP-320).
  D3  Above the high watermark is not lost: after an unclean stop its checkpoint may be older than the stream.

With failOnDataLoss=false a stream goes on at the first record of a new topic, at the log start after retention, and at
the log end after a truncation, as in Spark's Kafka source; or at the first record of the later leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.spark.bounds import TopicPartition
from klog.spark.offsets import Offsets
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class Present:
    """A partition as it is: it holds [log_start_offset, log_end_offset); a stream reads up to end_offset.

    leader_epochs: (epoch, its first offset), in order.
    """

    path: str
    log_start_offset: int
    log_end_offset: int
    end_offset: int
    topic_id: str | None = None
    leader_epochs: Sequence[tuple[int, int]] = ()

    def epoch_before(self, offset: int) -> int | None:
        """Return the leader epoch of the last record before an offset, None if it is unknown."""
        return max((epoch for epoch, first in self.leader_epochs if first < offset), default=None)

    def end_of_epoch(self, epoch: int) -> int:
        """Return where a later leader epoch begins, the log end if none does."""
        return min((first for later, first in self.leader_epochs if later > epoch), default=self.log_end_offset)


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that a stream has to read and that are gone. goes_on: where it continues if that is allowed."""

    pair: TopicPartition
    wanted: int
    present: Present | None
    reason: str
    goes_on: int | None

    def __str__(self) -> str:
        if self.present is None:
            return f"{self.pair}: the stream is at offset {self.wanted}, but {self.reason}"
        held = f"[{self.present.log_start_offset}, {self.present.log_end_offset})"
        return (
            f"{self.pair}: the stream is at offset {self.wanted}, but {self.present.path} holds {held}: {self.reason}"
        )


def resume(
    offsets: Mapping[TopicPartition, int],
    present: Mapping[TopicPartition, Present],
    ids: Mapping[str, str],
    epochs: Mapping[TopicPartition, int | None],
) -> tuple[Offsets, list[Loss]]:
    """Return where each present partition is read from, and the losses. ids: topic → id when it was last read. epochs:
    partition → leader epoch of the last record that was read."""
    positions = {pair: found.log_start_offset for pair, found in present.items()}
    losses = []
    for pair, wanted in sorted(offsets.items()):
        loss = _loss(pair, wanted, present.get(pair), ids.get(pair.topic), epochs.get(pair))
        if loss is not None:
            losses.append(loss)
        if pair in positions:
            positions[pair] = wanted if loss is None or loss.goes_on is None else loss.goes_on
    return positions, losses


_GONE = "the partition is gone: its topic was deleted, moved to a log.dir not in the paths, or is not subscribed"


def _loss(
    pair: TopicPartition, wanted: int, found: Present | None, known_id: str | None, epoch: int | None
) -> Loss | None:
    if found is None:
        return Loss(pair, wanted, None, _GONE, None)
    start, end = found.log_start_offset, found.log_end_offset
    if known_id is not None and found.topic_id is not None and known_id != found.topic_id:
        reason = f"the topic was deleted and created again (its id was {known_id}, now it is {found.topic_id})"
        return Loss(pair, wanted, found, reason, start)
    if wanted < start:
        return Loss(pair, wanted, found, f"retention or a delete has removed [{wanted}, {start})", start)
    rewritten = end if epoch is None else found.end_of_epoch(epoch)
    if rewritten < min(wanted, end):
        reason = f"its leader epoch {epoch} ends at {rewritten}: it was truncated, and a later leader has written there"
        return Loss(pair, wanted, found, reason, max(rewritten, start))
    if wanted > end:
        return Loss(pair, wanted, found, "the log was truncated, or its topic deleted and created again", end)
    return None
