"""What a materialized table lacks: the offsets of a topic after those of the manifest, and how tasks divide them.

  log.dir, manifest ──read_state──► TopicState: offsets to add to each partition, or DataLoss
  TopicState ──work_of──► pieces of about a file each, in tasks; or ranges to read, and the buckets of keys to merge in

P1  A partition is added from where the manifest ends, or from its first record, to the readable end (survey.py, S3 to
    S5), which is fixed here.
P2  Lost are the same offsets as in a stream (resume.py).
P3  Only the last file of a partition may be small; the next rows are merged into it. So no other piece is smaller
    than a file, by its stored bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from klog.logger import logger_of
from klog.spark.bounds import DataLoss, TopicPartition
from klog.spark.options import Options
from klog.spark.plan import Bin, Range
from klog.spark.resume import Loss, resume
from klog.spark.survey import plan_ranges, present_of, select
from klog.spark.table_files import Bucket, Piece
from klog.spark.table_manifest import BITS_MAX, Extract, Manifest
from klog.values import dataclass, field, replace

if TYPE_CHECKING:
    from klog.spark.opening import Logs

logger = logger_of("spark")

_WHOLE = 1 << 60  # bytes of a task: nothing is cut
_TASK_BYTES = 8 << 20  # less is not worth a task's fixed cost


@dataclass(frozen=True)
class TopicState:
    """A topic as it is, beside its table. wanted: offsets [start, end) to add; compacts: by its cleanup.policy."""

    topic: str
    topic_id: str | None
    compacts: bool
    wanted: Mapping[TopicPartition, tuple[int, int]]
    leader_epochs: Mapping[int, int | None]

    def extracts(self, before: Manifest | None, bits: Mapping[int, int]) -> dict[int, Extract]:
        """What the table has of each partition when `wanted` is added. bits: of partitions without files."""
        found = dict(before.partitions) if before is not None else {}
        for (_, partition), (start, end) in self.wanted.items():
            known = found.get(partition)
            found[partition] = Extract(
                start if known is None else known.start,
                end,
                self.leader_epochs[partition],
                bits.get(partition, 0 if known is None else known.bits),
            )
        return found


def read_state(logs: Logs, options: Options, before: Manifest | None) -> TopicState:
    """Return what to add to a table (P1). Raises DataLoss (P2), UnknownTopicOrPartition, InconsistentTopicId."""
    chosen = select(options.subscription, logs)
    topic = chosen[0].topic
    present = present_of(logs, chosen, options)
    topic_id = present[chosen[0]].topic_id
    had = {} if before is None else {TopicPartition(topic, number): each for number, each in before.partitions.items()}
    known = {} if before is None or before.topic_id is None else {topic: before.topic_id}
    ends = {pair: each.end for pair, each in had.items()}
    positions, losses = resume(ends, present, known, {pair: each.leader_epoch for pair, each in had.items()})
    _report(losses, options.reading.fail_on_data_loss)
    wanted = {pair: (positions[pair], max(present[pair].end_offset, positions[pair])) for pair in chosen}
    epochs = {pair.partition: present[pair].epoch_before(end) for pair, (_, end) in wanted.items()}
    return TopicState(topic, topic_id, logs[chosen[0]].config.compacts, wanted, epochs)


def _report(losses: Iterable[Loss], fail: bool) -> None:
    for loss in losses:
        held = (
            loss.present and f"[{loss.present.log_start_offset}, {loss.present.log_end_offset}) of {loss.present.path}"
        )
        text = f"{loss.pair}: the table ends at offset {loss.wanted}, the log has {held or 'nothing'}: {loss.reason}"
        if fail:
            raise DataLoss(
                f"{text}. failOnDataLoss=False keeps the rows of the table and goes on with what is there; for a table "
                f"of the log as it is, materialize into another directory"
            )
        logger.warning("event=data_loss %s", text)


# ---- the tasks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What tasks do: write pieces, or merge ranges into buckets by about `merging` tasks. bits: of new partitions."""

    pieces: Sequence[tuple[Piece, ...]] = ()
    ranges: Sequence[Bin] = ()
    buckets: Sequence[Bucket] = ()
    merging: int = 1
    bits: Mapping[int, int] = field(default_factory=dict)


def work_of(
    logs: Logs, found: TopicState, options: Options, before: Manifest | None, target_bytes: int, *, latest: bool
) -> Work:
    """Return what adds the offsets to a table."""
    if not latest:
        return Work(_pieces(logs, found, options, before, target_bytes))
    ranges = plan_ranges(logs, found.wanted, options)
    buckets, bits = _buckets(logs, found, options, before, target_bytes)
    stored = sum(each.size for some in ranges for each in some)
    stored += sum(each.file.size for each in buckets if each.file is not None)
    merging = min(len(buckets), max(options.parallelism or 1, stored // target_bytes))
    return Work(ranges=ranges, buckets=buckets, merging=merging, bits=bits)


def _pieces(
    logs: Logs, found: TopicState, options: Options, before: Manifest | None, target_bytes: int
) -> list[tuple[Piece, ...]]:
    """Return the pieces of each task (P3)."""
    wholes = _wholes(logs, found, options)
    share = sum(whole.size for whole in wholes) // (2 * (options.parallelism or 1))
    sizing = replace(options, target_split_bytes=max(target_bytes, share))
    pieces: list[Piece] = []
    for whole in wholes:
        bins = plan_ranges(logs, {whole.pair: (whole.start_offset, whole.end_offset)}, sizing)
        ranges = [each for ranges in bins for each in ranges]
        files = [] if before is None else before.of(whole.partition)
        tail = files[-1] if files and files[-1].size < target_bytes and files[-1].end <= whole.start_offset else None
        for number, each in enumerate(ranges):
            pieces.append(Piece(each, None if number else tail, each is ranges[-1]))
    return _packed(pieces, min(max(share, _TASK_BYTES), target_bytes))


def _wholes(logs: Logs, found: TopicState, options: Options) -> list[Range]:
    bins = plan_ranges(logs, found.wanted, replace(options, target_split_bytes=_WHOLE))
    return [each for ranges in bins for each in ranges]


def _packed(pieces: Iterable[Piece], task_bytes: int) -> list[tuple[Piece, ...]]:
    """Put small pieces into one task."""
    tasks: list[tuple[Piece, ...]] = []
    waiting: list[Piece] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.range.size + (0 if piece.tail is None else piece.tail.size)
        if size >= task_bytes:
            tasks.append(tuple(waiting))
            waiting, size = [], 0
    return [*tasks, tuple(waiting)] if waiting else tasks


def _buckets(
    logs: Logs, found: TopicState, options: Options, before: Manifest | None, target_bytes: int
) -> tuple[list[Bucket], dict[int, int]]:
    """Return all buckets, and the bits of partitions that are new in the table."""
    sizes = {whole.partition: whole.size for whole in _wholes(logs, found, options)}
    buckets, new_bits = [], {}
    for _, partition in found.wanted:
        files = [] if before is None else before.of(partition)
        known = None if before is None else before.partitions.get(partition)
        bits = 0 if known is None else known.bits
        if not files:
            bits = max(bits, min((sizes.get(partition, 0) // target_bytes).bit_length(), BITS_MAX))
            new_bits[partition] = bits
        buckets += [Bucket(partition, file.bits, file.bucket, file) for file in files]
        used = {file.bucket & ((1 << bits) - 1) for file in files}
        buckets += [Bucket(partition, bits, number) for number in range(1 << bits) if number not in used]
    return buckets, new_bits
