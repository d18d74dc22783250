"""GroupCoordinator: the groups of a broker and their committed offsets.

    JoinGroup, SyncGroup, Heartbeat, LeaveGroup        ClassicGroups        ┐
    OffsetCommit, TxnOffsetCommit, OffsetDelete        OffsetCommits        │
    OffsetFetch                                        OffsetFetches        ├─ GroupTable ─ __consumer_offsets
    ListGroups, DescribeGroups, DeleteGroups           GroupAdmin           │
    (time)                                             Expiry               │
    ConsumerGroupHeartbeat, ConsumerGroupDescribe      ConsumerKind         │
    other kinds of groups, by plug()                   GroupKind            ┘

load() replays the topic before the first request; until then and after close() requests get an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.admin import GroupAdmin
from klog.coordinator.groups.classic_requests import ClassicGroups
from klog.coordinator.groups.config import GroupConfig
from klog.coordinator.groups.consumer_kind import ConsumerKind
from klog.coordinator.groups.expiry import Expiry
from klog.coordinator.groups.offset_commits import OffsetCommits
from klog.coordinator.groups.offset_fetch import OffsetFetches
from klog.coordinator.groups.offset_records import read_key, read_value
from klog.coordinator.groups.rebalances import Rebalances
from klog.coordinator.groups.table import GroupTable
from klog.errors import CorruptData
from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from klog.clock import Clock
    from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
    from klog.coordinator.groups.description import GroupDescription
    from klog.coordinator.groups.group import GroupKind, Handler
    from klog.coordinator.groups.offset_commits import TransactionCheck
    from klog.protocol import ApiKey
    from klog.record import Record
    from klog.scheduler import Scheduler, Task
    from klog.security.context import Topics

_log = logger_of("coordinator")
_OFFSET_TYPES = (0, 1)


class GroupCoordinator:
    """Any thread, except for plug() and load(), which come before the first request.

    scheduler: runs the deadlines of members. consumers: the limits of consumer groups (KIP-848). transactions: checks
    the producers of TxnOffsetCommit; None accepts them.
    """

    def __init__(
        self,
        topics: Topics,
        scheduler: Scheduler,
        clock: Clock,
        config: GroupConfig | None = None,
        *,
        consumers: ConsumerGroupConfig | None = None,
        transactions: TransactionCheck | None = None,
    ) -> None:
        self.table = GroupTable(topics, scheduler, clock, config or GroupConfig())
        rebalances = Rebalances(self.table)
        self._scheduler = scheduler
        self._rebalances = rebalances
        self._expiry = Expiry(self.table)
        self._consumers = ConsumerKind(self.table, rebalances, consumers)
        self._kinds: list[GroupKind] = [ClassicGroups(self.table, rebalances, self._consumers), self._consumers]
        self._commits = OffsetCommits(self.table, rebalances, transactions)
        self._fetches = OffsetFetches(self.table)
        self._admin = GroupAdmin(self.table)
        self._expiring: Task | None = None

    def plug(self, kind: GroupKind) -> None:
        """Add a kind of groups. It has this coordinator's table."""
        self._kinds.append(kind)

    def configure(self, group_id: str, config: ConsumerGroupConfig | None) -> None:
        """Give a consumer group a configuration of its own; None takes it back. The group need not exist."""
        self._consumers.configure(group_id, config)

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs of this component and of the kinds that were added."""
        found: dict[ApiKey, Handler] = {}
        for kind in self._kinds:
            found.update(kind.handlers())
        return found | self._commits.handlers() | self._fetches.handlers() | self._admin.handlers()

    # ---- life --------------------------------------------------------------------------------------------------------

    def load(self) -> int:
        """Replay the records of all groups, and serve requests from then on. Returns the number of records.

        Records of unknown types are skipped, and logged once for each type. Raises CorruptData, OSError.
        """
        table = self.table
        kinds = {number: kind for kind in self._kinds for number in kind.record_types}
        skipped: set[int] = set()

        def apply(partition: int, record: Record, producer_id: int) -> None:
            number = _type_of(record)
            if number in _OFFSET_TYPES:
                self._replay_offset(partition, record, producer_id)
            elif number in kinds:
                kinds[number].replay(record)
            elif number not in skipped:
                skipped.add(number)
                _log.warning("event=records_skipped topic=%s type=%d offset=%s", table.log.topic, number, record.offset)

        def ended(partition: int, producer_id: int, committed: bool) -> None:
            table.offsets.complete((partition, producer_id), committed=committed)

        with table.lock:
            count = table.log.replay(apply, ended)
            for kind in self._kinds:
                kind.loaded()
            table.serve()
            groups = len(table.groups())
        interval_ms = table.config.offsets_retention_check_interval_ms
        self._expiring = self._scheduler.schedule("expire offsets", self._expiry.expire, interval_ms, interval_ms)
        _log.info("event=loaded topic=%s records=%d groups=%d", table.log.topic, count, groups)
        return count

    def _replay_offset(self, partition: int, record: Record, producer_id: int) -> None:
        assert record.key is not None
        offsets = self.table.offsets
        place = read_key(record.key)
        if record.value is None:
            offsets.remove(*place)
            return
        committed = read_value(record.value, -1 if record.offset is None else record.offset)
        if self.table.get(place[0]) is None:  # of a consumer without membership, which has no record of a group
            self.table.put(self._rebalances.new_group(place[0]))
        if producer_id < 0:
            offsets.put(*place, committed)
        else:
            offsets.put_pending((partition, producer_id), place, committed)

    def close(self) -> None:
        """Respond to all requests that wait, and refuse new ones. A second call does nothing."""
        if self._expiring is not None:
            self._expiring.cancel()
        with self.table.lock:
            if not self.table.deadlines.closed:
                self.table.stop()
                for kind in self._kinds:
                    kind.closed()

    # ---- calls of other components -----------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """The description of a group as of now; None for an unknown one."""
        from klog.coordinator.groups.description import describe

        with self.table.lock:
            group = self.table.get(group_id)
            return None if group is None else describe(group, self.table.offsets)

    def group_ids(self) -> list[str]:
        """The ids of all groups, sorted."""
        with self.table.lock:
            return sorted(group.group_id for group in self.table.groups())

    def complete_transaction(
        self, partition: int, producer_id: int, committed: bool, append: Callable[[], object]
    ) -> None:
        """Call append(), which appends the marker of a transaction to a partition of __consumer_offsets, and apply the
        marker. Under one lock: what the producer commits after the marker is of its next transaction. Raises what
        append() raises."""
        with self.table.lock:
            append()
            self.table.offsets.complete((partition, producer_id), committed=committed)

    def topics_changed(self) -> None:
        """Topics were created or deleted, or have more partitions: consumer groups check them with their next
        heartbeat, not only after the refresh interval."""
        self._consumers.topics_changed()

    def partitions_deleted(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Partitions, (topic, number), exist no more: their offsets are deleted."""
        self._expiry.partitions_deleted(partitions)


def _type_of(record: Record) -> int:
    key = record.key
    if key is None or len(key) < 2:
        raise CorruptData(f"a record without the type in its key: {key!r}", offset=record.offset)
    return int.from_bytes(key[:2], "big", signed=True)
