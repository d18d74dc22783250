"""SharePartitions: the partitions of all share groups of a broker: their states, log, lock and timers.

  R1  every call needs the lock, except where it says otherwise. A call under the lock of GroupTable may take it, not
      the other way round
  R2  a change is in the log before it counts. A change that needs no answer, the end of an acquisition, counts even if
      the log fails: after a restart the records are available anyway
  R3  `available` is called under the lock after records were given back, and must not wait; what an acknowledgement
      makes available its caller knows

The start offset is written when it is chosen: a group that begins at the end of a log still has what came after that
when the broker has crashed before the first acknowledgement. Kafka writes it with that. Kafka: SharePartitionManager,
SharePartition, DefaultStatePersister.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klog.coordinator.groups.deadlines import Deadlines
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.share.acquiring import cut, readable_of
from klog.coordinator.share.share_partition import RENEW, Limits, Plan
from klog.coordinator.share.state_log import Shared, ShareKey, ShareStateLog
from klog.errors import KlogError, OffsetOutOfRange
from klog.locks import OwnLock
from klog.logger import logger_of
from klog.protocol import ErrorCode
from klog.values import NamedTuple

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Container, Iterable, Sequence

    from klog.clock import Clock
    from klog.coordinator.groups.deadlines import Deadline
    from klog.coordinator.share.config import ShareGroupConfig
    from klog.coordinator.share.share_partition import Acknowledgement, Acquired
    from klog.log import FetchData, Log
    from klog.log.read.isolation import Isolation
    from klog.scheduler import Scheduler
    from klog.security.context import Topics

_log = logger_of("coordinator")
_READS_MAX = 16


class Found(NamedTuple):
    """What a member gets of a partition. data: None for nothing."""

    data: FetchData | None
    acquired: Sequence[Acquired]


class SharePartitions:
    """Any thread. config: of a group by its id. available: called with the partition of a group that has available
    records again (R3)."""

    def __init__(
        self,
        topics: Topics,
        scheduler: Scheduler,
        clock: Clock,
        updates_max: int,
        config: Callable[[str], ShareGroupConfig],
        available: Callable[[ShareKey], object],
    ) -> None:
        self.lock = OwnLock()
        self._topics = topics
        self._scheduler = scheduler
        self._clock = clock
        self._config = config
        self._available = available
        self._deadlines = Deadlines(scheduler, self.lock)
        self._log = ShareStateLog(topics, updates_max)
        self._groups: dict[str, dict[ShareKey, Shared]] = {}
        self._timers: dict[ShareKey, Deadline] = {}
        self._opened: set[ShareKey] = set()

    # ---- life ------------------------------------------------------------------------------------------------------

    def load(self, wanted: Callable[[ShareKey], bool]) -> None:
        """Read the states from the log. Those that no group uses are deleted. Takes the lock. Raises CorruptData,
        OSError."""
        with self.lock:
            unwanted = []
            for key, shared in self._log.load().items():
                if wanted(key):
                    self._groups.setdefault(key.group_id, {})[key] = shared
                else:
                    unwanted.append(key)
            if unwanted:
                self._remove(unwanted)

    def close(self) -> None:
        """Stop the timers."""
        with self.lock:
            self._deadlines.close()

    # ---- which partitions there are: the lock is taken -------------------------------------------------------------

    def initialize(
        self, group_id: str, state_epoch: int, partitions: Iterable[tuple[uuid.UUID, int]], start_offset: int = -1
    ) -> None:
        """Add partitions to a group, from a start offset on; -1: where its configuration says when the first member
        reads. One that it has already begins anew. Raises Refused; then some may have begun."""
        with self.lock:
            shares = self._groups.setdefault(group_id, {})
            for topic_id, partition in partitions:
                key = ShareKey(group_id, topic_id, partition)
                made = Shared(key, state_epoch, start_offset, before=shares.get(key))
                self._written(partial(self._log.snapshot, made, self._clock.wall_ms()))
                shares[key] = made
                self._opened.discard(key)
            self._prune()

    def delete(self, keys: Iterable[ShareKey]) -> None:
        """Forget partitions of groups. If the log fails they are forgotten all the same, and deleted at the next start,
        as no group has them."""
        with self.lock:
            self._remove(keys)

    def _remove(self, keys: Iterable[ShareKey]) -> None:
        gone = list(keys)
        for key in gone:
            shares = self._groups.get(key.group_id, {})
            shares.pop(key, None)
            if not shares:
                self._groups.pop(key.group_id, None)
            self._opened.discard(key)
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
        try:
            self._log.remove(gone)
        except (KlogError, OSError) as error:
            _log.warning("event=share_state_left partitions=%d error=%s", len(gone), error)

    def find(self, key: ShareKey) -> Shared | None:
        """A partition of a group; None for an unknown one."""
        return self._groups.get(key.group_id, {}).get(key)

    # ---- what members do: under the lock ---------------------------------------------------------------------------

    def size(self, key: ShareKey, log: Log) -> int | None:
        """How many bytes members could acquire now; None if some are in an older segment, which is enough. Raises
        Refused, KlogError, OSError. Kafka: DelayedShareFetch.isMinBytesSatisfied."""
        config = self._config(key.group_id)
        offset, bound = self._fetch_offset(key, log, config), log.bound(_isolation(config))
        if offset is None or offset >= bound:
            return 0
        position_of = log.maybe_convert_to_offset_metadata
        return position_of(offset).bytes_until(position_of(bound))

    def acquire(
        self,
        key: ShareKey,
        log: Log,
        max_bytes: int,
        max_records: int,
        batch_size: int,
        *,
        member: str,
        exact: bool,
        min_one: bool,
    ) -> Found:
        """Give a member what is available. batch_size: neighbours in the result are joined up to this many records.
        exact: never more than max_records. min_one: also a batch that is larger than max_bytes. Raises Refused, and
        what Log.fetch raises."""
        config = self._config(key.group_id)
        limits, isolation = _limits(config), _isolation(config)
        for _ in range(_READS_MAX):  # a slice may have nothing but markers
            data = self._read(key, log, max_bytes, min_one=min_one)
            if data is None or not data.size or max_records <= 0:
                break
            partition = self._find(key).partition
            readable = readable_of(data, max(partition.start_offset + limits.records, partition.next_offset))
            acquired = partition.acquire(
                member,
                readable.batches,
                readable.stop,
                max_records=max_records,
                exact=exact,
                deadline_ms=self._scheduler.now_ms() + config.record_lock_duration_ms,
                limits=limits,
            )
            if acquired:
                self._watch(key)
                return Found(cut(log, readable, acquired[-1].last, isolation), _joined(acquired, batch_size))
            if partition.fetch_offset(limits) == data.offset:
                break
        return Found(None, ())

    def acknowledge(self, key: ShareKey, member: str, said: Sequence[Acknowledgement]) -> None:
        """A member acknowledges records. Raises Refused; then nothing has changed."""
        shared, config = self._find(key), self._config(key.group_id)
        if not config.renew_acknowledge_enable and any(RENEW in each.types for each in said):
            raise Refused(ErrorCode.INVALID_REQUEST, "Renew acknowledgements are not enabled for the group.")
        plan = shared.partition.acknowledge(
            member,
            said,
            deadline_ms=self._scheduler.now_ms() + config.record_lock_duration_ms,
            limits=_limits(config),
        )
        if plan.batches:
            self._written(partial(self._log.write, shared, plan, self._clock.wall_ms()))
        shared.partition.commit(plan)
        self._watch(key)
        self._prune()

    def release(self, group_id: str, member: str, among: Container[ShareKey] | None = None) -> None:
        """A member leaves: what it has acquired is available again, of some partitions or of all. Takes the lock, also
        under that of GroupTable."""
        with self.lock:
            for key, shared in list(self._groups.get(group_id, {}).items()):
                if among is None or key in among:
                    self._freed(shared, shared.partition.release(member, self._limits_of(shared)))

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _find(self, key: ShareKey) -> Shared:
        found = self.find(key)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The group {key.group_id} has no such partition.")
        return found

    def _limits_of(self, shared: Shared) -> Limits:
        return _limits(self._config(shared.key.group_id))

    def _fetch_offset(self, key: ShareKey, log: Log, config: ShareGroupConfig) -> int | None:
        """From which offset on members read now; None if they have as many records as they may."""
        shared = self._find(key)
        self._follow(shared, log, config)
        return shared.partition.fetch_offset(_limits(config))

    def _read(self, key: ShareKey, log: Log, max_bytes: int, *, min_one: bool) -> FetchData | None:
        config = self._config(key.group_id)
        offset = self._fetch_offset(key, log, config)
        if offset is None or offset > log.log_end_offset:
            return None
        try:
            return log.fetch(offset, max_bytes, isolation=_isolation(config), min_one_message=min_one)
        except OffsetOutOfRange:
            return None  # the log start has moved, and is followed next time

    def _follow(self, shared: Shared, log: Log, config: ShareGroupConfig) -> None:
        """Choose the start offset, or follow the log start. After a start of the broker the log may have less than the
        state says, if the machine has failed: what is appended there later is not delivered yet."""
        partition = shared.partition
        shared.follow_leader(log.leader_epoch)
        if partition.start_offset < 0:
            partition.start_at(_start_offset(log, config, self._clock.wall_ms()))
            plan = Plan((), partition.start_offset, partition.runs)
            self._written(partial(self._log.write, shared, plan, self._clock.wall_ms()))
        elif shared.key not in self._opened and partition.next_offset > log.log_end_offset:
            # A snapshot: updates never take a start offset back.
            partition = partition.ended_at(log.log_end_offset)
            self._written(partial(self._log.snapshot, shared, self._clock.wall_ms(), partition))
            shared.replace_partition(partition)
        self._opened.add(shared.key)
        if log.log_start_offset > partition.start_offset:
            partition.start_at(log.log_start_offset)

    def _watch(self, key: ShareKey) -> None:
        """Set the timer for the first acquisition that ends. Without one an earlier timer goes on: it is soon moved."""
        due_ms = self._find(key).partition.deadline_ms
        if due_ms is None:
            return
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = self._deadlines.make(f"share locks {key}", partial(self._expired, key))
        timer.set(due_ms - self._scheduler.now_ms())

    def _expired(self, key: ShareKey) -> None:
        """The deadline of an acquisition has passed. It may have ended before. Under the lock."""
        shared = self.find(key)
        if shared is not None:
            self._freed(shared, shared.partition.expire(self._scheduler.now_ms(), self._limits_of(shared)))
            self._watch(key)

    def _freed(self, shared: Shared, plan: Plan | None) -> None:
        """Records are given back."""
        if plan is None:
            return
        try:
            self._log.write(shared, plan, self._clock.wall_ms())
        except (KlogError, OSError) as error:
            _log.warning("event=share_state_not_written partition=%s error=%s", shared.key, error)
        shared.partition.commit(plan)
        if not self._deadlines.closed:
            self._available(shared.key)
            self._prune()

    def _written(self, write: Callable[[], object]) -> None:
        try:
            write()
        except (KlogError, OSError) as error:
            _log.warning("event=share_state_not_written error=%s", error)
            storage = isinstance(error, OSError) or error.code == ErrorCode.KAFKA_STORAGE_ERROR
            code = ErrorCode.KAFKA_STORAGE_ERROR if storage else ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise Refused(code, "The state of the share group could not be written.") from error

    def _prune(self) -> None:
        try:
            self._log.prune(
                (shared for shares in self._groups.values() for shared in shares.values()), self._clock.wall_ms()
            )
        except (KlogError, OSError) as error:
            _log.warning("event=share_state_not_pruned error=%s", error)


def _limits(config: ShareGroupConfig) -> Limits:
    return Limits(config.delivery_count_limit, config.partition_max_record_locks)


def _isolation(config: ShareGroupConfig) -> Isolation:
    return "read_committed" if config.isolation_level == "read_committed" else "high_watermark"


def _start_offset(log: Log, config: ShareGroupConfig, now_ms: int) -> int:
    if config.auto_offset_reset == "earliest":
        return log.log_start_offset
    duration_ms = config.reset_duration_ms
    found = None if duration_ms is None else log.offset_for_timestamp(now_ms - duration_ms)
    return log.high_watermark if found is None else found.offset


def _joined(acquired: Sequence[Acquired], batch_size: int) -> list[Acquired]:
    """Neighbours with the same count as one, up to a size."""
    joined: list[Acquired] = []
    for each in acquired:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.last + 1 == each.first
            and before.deliveries == each.deliveries
            and before.last - before.first + 1 < batch_size
        ):
            joined[-1] = before._replace(last=each.last)
        else:
            joined.append(each)
    return joined
