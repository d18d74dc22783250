"""ShareStateLog: __share_group_state, what the share groups of a broker have delivered.

    ShareSnapshot   all of a partition of a group: its start offset, and what is known of the records after that
    ShareUpdate     what has changed since: the last ones count

  L1  the records of a partition of a group are in one partition of the topic. A snapshot makes those before it
      superfluous; the topic is not compacted, as updates would be lost
  L2  after share.coordinator.snapshot.update.records.per.snapshot updates comes a snapshot, with the next epoch
  L3  prune() writes all states again and deletes the records before that, so that the topic does not grow

Kafka: ShareCoordinatorShard, ShareCoordinatorRecordHelpers; PersisterStateBatchCombiner does what
SharePartition.restore() does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.coordinator.coordinator_log import CoordinatorLog
from klog.coordinator.groups.consumer_records import id_of, id_text
from klog.coordinator.share.share_partition import Plan, SharePartition, StateBatch
from klog.errors import CorruptData
from klog.internal_topics import decode, encode_key, encode_value
from klog.internal_topics.names import SHARE_GROUP_STATE
from klog.values import NamedTuple

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable

    from klog.record import Record
    from klog.security.context import Topics

_SNAPSHOT, _UPDATE = "share_snapshot", "share_update"
_PRUNE_RECORDS = 10_000


class ShareKey(NamedTuple):
    """One partition of one share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        """As Kafka's share coordinator has it: its hash decides which partition has the records."""
        return f"{self.group_id}:{id_text(self.topic_id)}:{self.partition}"


class Shared:
    """A partition of a share group, and what its records say beside its runs. snapshot_offset: where the last snapshot
    is; updates: how many came after it."""

    __slots__ = (
        "create_ms",
        "key",
        "leader_epoch",
        "partition",
        "snapshot_epoch",
        "snapshot_offset",
        "state_epoch",
        "updates",
    )

    def __init__(self, key: ShareKey, state_epoch: int, start_offset: int = -1, before: Shared | None = None) -> None:
        """before: the state of the same partition that this one replaces: its snapshot is followed by the new one."""
        self.key = key
        self.partition = SharePartition(start_offset)
        self.state_epoch = state_epoch
        self.leader_epoch = -1
        self.updates = 0
        self.snapshot_epoch: int = 0 if before is None else before.snapshot_epoch
        self.snapshot_offset: int = -1 if before is None else before.snapshot_offset
        self.create_ms = -1

    def follow_leader(self, leader_epoch: int) -> None:
        """The next records have this epoch."""
        self.leader_epoch = leader_epoch

    def replace_partition(self, partition: SharePartition) -> None:
        """Go on with another state of the partition, which a snapshot has written."""
        self.partition = partition


class ShareStateLog:
    """Under the lock of its owner. updates_max: L2."""

    def __init__(self, topics: Topics, updates_max: int) -> None:
        self._topics = topics
        self._log = CoordinatorLog(topics, SHARE_GROUP_STATE)
        self._updates_max = updates_max
        self._since_pruned: dict[int, int] = {}  # by partition: how many records
        self._prune_at: dict[int, int] = {}  # by partition: at how many prune() looks again

    # ---- to the log ------------------------------------------------------------------------------------------------

    def write(self, shared: Shared, plan: Plan, now_ms: int) -> None:
        """Append what a plan changes. Raises what CoordinatorLog.append raises; then nothing is written."""
        if shared.snapshot_offset < 0 or shared.updates >= self._updates_max:
            self._snapshot(shared, plan, now_ms)
            return
        key = shared.key
        record = (
            encode_key(_UPDATE, **_key_fields(key)),
            encode_value(
                _UPDATE,
                0,
                snapshot_epoch=shared.snapshot_epoch,
                leader_epoch=shared.leader_epoch,
                start_offset=plan.start_offset,
                delivery_complete_count=plan.done_count,
                state_batches=_batch_fields(plan.batches),
            ),
        )
        self._append(key, record)
        shared.updates += 1

    def snapshot(self, shared: Shared, now_ms: int, partition: SharePartition | None = None) -> None:
        """Append all of it. partition: what it will have instead. Raises what CoordinatorLog.append raises."""
        partition = partition or shared.partition
        self._snapshot(shared, Plan((), partition.start_offset, partition.runs), now_ms)

    def _snapshot(self, shared: Shared, plan: Plan, now_ms: int) -> None:
        key = shared.key
        made = SharePartition(plan.start_offset)
        made.commit(plan)
        epoch = shared.snapshot_epoch + 1 if shared.snapshot_offset >= 0 else shared.snapshot_epoch
        create_ms = now_ms if shared.create_ms < 0 else shared.create_ms
        record = (
            encode_key(_SNAPSHOT, **_key_fields(key)),
            encode_value(
                _SNAPSHOT,
                0,
                snapshot_epoch=epoch,
                state_epoch=shared.state_epoch,
                leader_epoch=shared.leader_epoch,
                start_offset=plan.start_offset,
                delivery_complete_count=plan.done_count,
                create_timestamp=create_ms,
                write_timestamp=now_ms,
                state_batches=_batch_fields(made.state_batches()),
            ),
        )
        shared.snapshot_offset = self._append(key, record)
        shared.snapshot_epoch, shared.create_ms, shared.updates = epoch, create_ms, 0

    def remove(self, keys: Iterable[ShareKey]) -> None:
        """Append tombstones. Raises what CoordinatorLog.append raises; then some may be written."""
        for key in keys:
            self._append(key, (encode_key(_SNAPSHOT, **_key_fields(key)), None))

    def _append(self, key: ShareKey, record: tuple[bytes, bytes | None]) -> int:
        partition = self._log.partition_for(str(key))
        offset = self._log.append(partition, [record]).first_offset
        self._since_pruned[partition] = self._since_pruned.get(partition, 0) + 1
        return offset

    def prune(self, known: Iterable[Shared], now_ms: int) -> None:
        """L3, after every 10,000 records of a partition, if the states are fewer. To be called after writes. Raises
        what CoordinatorLog.append, Log.flush and Log.delete_records raise."""
        grown = [
            each for each, count in self._since_pruned.items() if count >= self._prune_at.get(each, _PRUNE_RECORDS)
        ]
        if not grown:
            return
        homes: dict[int, list[Shared]] = {partition: [] for partition in grown}
        for shared in known:
            homes.get(self._log.partition_for(str(shared.key)), []).append(shared)
        for partition, some in homes.items():
            log = self._topics.log(SHARE_GROUP_STATE, partition)
            if log is None or self._since_pruned[partition] < 4 * len(some):
                self._prune_at[partition] = self._since_pruned[partition] + _PRUNE_RECORDS
                continue
            before = log.log_end_offset
            for shared in some:
                self.snapshot(shared, now_ms)
            log.flush()  # what is deleted may be on disk: a power cut must not take what replaces it
            log.delete_records(before)
            self._since_pruned[partition] = 0
            self._prune_at.pop(partition, None)

    # ---- from the log ----------------------------------------------------------------------------------------------

    def load(self) -> dict[ShareKey, Shared]:
        """All partitions of all groups. Raises CorruptData, OSError."""
        found: dict[ShareKey, Shared] = {}
        self._log.replay(lambda partition, record, _producer_id: self._apply(found, partition, record))
        return found

    def _apply(self, found: dict[ShareKey, Shared], partition: int, record: Record) -> None:
        self._since_pruned[partition] = self._since_pruned.get(partition, 0) + 1
        decoded = decode(record, SHARE_GROUP_STATE)
        if decoded is None or decoded.key is None:
            return
        key = ShareKey(decoded.key["group_id"], id_of(decoded.key["topic_id"]), decoded.key["partition"])
        value = decoded.value
        if value is None:
            found.pop(key, None)
            return
        try:
            if decoded.type == _SNAPSHOT:
                shared = found[key] = Shared(key, value["state_epoch"])
                shared.create_ms = value["create_timestamp"]
                shared.snapshot_offset = -1 if record.offset is None else record.offset
                shared.snapshot_epoch = value["snapshot_epoch"]
            elif key not in found:
                return  # its snapshot was deleted, or it is of another Kafka
            else:
                shared = found[key]
                shared.updates += 1
            shared.leader_epoch = value["leader_epoch"]
            shared.partition.restore(value["start_offset"], _batches_of(value))
        except (ValueError, KeyError) as error:
            raise CorruptData(f"the state of {key} cannot be decoded: {error}", offset=record.offset) from None


def _key_fields(key: ShareKey) -> dict[str, Any]:
    return {"group_id": key.group_id, "topic_id": key.topic_id, "partition": key.partition}


def _batch_fields(batches: Iterable[StateBatch]) -> list[dict[str, int]]:
    return [
        {
            "first_offset": each.first,
            "last_offset": each.last,
            "delivery_state": each.state,
            "delivery_count": each.deliveries,
        }
        for each in batches
    ]


def _batches_of(value: dict[str, Any]) -> list[StateBatch]:
    return [
        StateBatch(each["first_offset"], each["last_offset"], each["delivery_state"], each["delivery_count"])
        for each in value["state_batches"]
    ]
