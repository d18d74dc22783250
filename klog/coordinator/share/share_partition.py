"""SharePartition: what a share group has delivered of one partition. It uses no clock, no lock and no log.

    start_offset     the first record that may still be delivered; Kafka: SPSO. -1: not chosen yet
    next_offset      the first record that was never delivered; Kafka: the SPEO is the one before it
    runs             the records between them, as runs of neighbours in the same state

    AVAILABLE ─ acquire() ─► ACQUIRED ─ accept ─────────────────► ACKNOWLEDGED
        ▲                       ├─ reject, not a record ────────► ARCHIVED
        └─ release, time-out ───┴─ the same, last delivery ─────► ARCHIVED

  P1  the runs cover [start_offset, next_offset), sorted, each offset once
  P2  an acquired record has one member, and a deadline
  P3  start_offset passes records that are acknowledged or archived, or that the log no longer has, and no others
  P4  acknowledge(), release() and expire() return a Plan and change nothing: commit() does, once the plan is in the log

What is acquired is not in the log: after a restart those records are available again. Kafka: SharePartition, which
keeps a state for each batch or offset.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from typing import TYPE_CHECKING, Final

from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The numbers are those of the records. Kafka: RecordState.
AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4
# How a member acknowledges a record. Kafka: AcknowledgeType.
GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_TYPES: Final = frozenset((GAP, ACCEPT, RELEASE, REJECT, RENEW))
_COUNT_MAX: Final = 2**15 - 1


class Run(NamedTuple):
    """Records from first to last, both included. deliveries: how often. member, deadline_ms: of acquired
    ones."""

    first: int
    last: int
    state: int
    deliveries: int
    member: str = ""
    deadline_ms: int = 0

    @property
    def is_done(self) -> bool:
        """Will the records never be delivered again?"""
        return self.state in (ACKNOWLEDGED, ARCHIVED)


class StateBatch(NamedTuple):
    """The state in the log of records from first to last."""

    first: int
    last: int
    state: int
    deliveries: int


class Acquired(NamedTuple):
    """Records that a member has now. deliveries: with this one."""

    first: int
    last: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of records from first to last: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Plan(NamedTuple):
    """What is to be written, and the runs and the start offset after that."""

    batches: tuple[StateBatch, ...]
    start_offset: int
    runs: list[Run]

    @property
    def done_count(self) -> int:
        """How many records after the start offset are acknowledged or archived."""
        return sum(run.last - run.first + 1 for run in self.runs if run.is_done)


class Limits(NamedTuple):
    """deliveries: of one record; records: in flight."""

    deliveries: int
    records: int


class SharePartition:
    """One partition of a share group. Under the lock of its owner."""

    __slots__ = ("next_offset", "runs", "start_offset")

    def __init__(self, start_offset: int = -1) -> None:
        self.start_offset = self.next_offset = start_offset
        self.runs: list[Run] = []

    def __repr__(self) -> str:
        return f"<SharePartition [{self.start_offset}, {self.next_offset}) {self.runs}>"

    # ---- queries ---------------------------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int | None:
        """When the first acquisition ends; None if nothing is acquired."""
        return min((run.deadline_ms for run in self.runs if run.state == ACQUIRED), default=None)

    @property
    def done_count(self) -> int:
        """How many records after the start offset are acknowledged or archived."""
        return Plan((), self.start_offset, self.runs).done_count

    def fetch_offset(self, limits: Limits) -> int | None:
        """Where to read what a member can acquire; None if there is nothing before others are acknowledged."""
        for run in self.runs:
            if run.state == AVAILABLE:
                return run.first
        return self.next_offset if self.next_offset - self.start_offset < limits.records else None

    def state_batches(self) -> list[StateBatch]:
        """The runs as the log has them."""
        known = (run for run in self.runs if run.state != AVAILABLE or run.deliveries)
        return _joined(
            StateBatch(run.first, run.last, AVAILABLE if run.state == ACQUIRED else run.state, run.deliveries)
            for run in known
        )

    # ---- without the log -------------------------------------------------------------------------------------------

    def start_at(self, offset: int) -> None:
        """Choose the start offset, or follow the log start: what is below it will not be delivered."""
        runs = [run._replace(first=max(run.first, offset)) for run in self.runs if run.last >= offset]
        self.next_offset = max(self.next_offset, offset)
        self.commit(_planned((), max(self.start_offset, offset), runs))

    def ended_at(self, log_end_offset: int) -> SharePartition:
        """Without what a log that is shorter does not have: what will be there are other records."""
        shorter = SharePartition(min(self.start_offset, log_end_offset))
        shorter.next_offset = min(self.next_offset, log_end_offset)
        shorter.runs = [
            run._replace(last=min(run.last, log_end_offset - 1)) for run in self.runs if run.first < log_end_offset
        ]
        return shorter

    def acquire(
        self,
        member: str,
        read: Sequence[tuple[int, int]],
        stop: int,
        *,
        max_records: int,
        exact: bool,
        deadline_ms: int,
        limits: Limits,
    ) -> list[Acquired]:
        """Give a member what is available of some batches of records.

        read: their first and last offsets, from fetch_offset() on. stop: offsets below it and in no batch of `read` do
        not exist or are not for consumers, and are archived.
        exact: never more than max_records; else the last batch is given as a whole. A record that is delivered for the
        last time comes alone: if it is the reason why members fail, the others are not lost with it.
        """
        begin = self.fetch_offset(limits)
        if begin is None or max_records <= 0:
            return []
        bound = max(self.start_offset + limits.records, self.next_offset)
        runs = list(self.runs)
        if stop > self.next_offset:
            runs.append(Run(self.next_offset, stop - 1, AVAILABLE, 0))
        acquired: list[Acquired] = []
        changed: list[Run] = []
        total, expected = 0, begin
        for first, last in read:
            changed += _archived(runs, expected, first - 1)
            expected = max(expected, last + 1)
            if first >= bound:
                break
            for run in _within(runs, max(first, begin), min(last, bound - 1)):
                if run.state != AVAILABLE:
                    continue
                alone = run.deliveries + 1 >= limits.deliveries > 1
                if alone and total:
                    max_records = total
                    break
                end = run.last
                if alone:
                    end, max_records = run.first, 1
                elif exact:
                    end = min(end, run.first + max_records - total - 1)
                count = min(run.deliveries + 1, _COUNT_MAX)
                changed.append(Run(run.first, end, ACQUIRED, count, member, deadline_ms))
                acquired.append(Acquired(run.first, end, count))
                total += end - run.first + 1
                if total >= max_records and (exact or alone):
                    break
            if total >= max_records:
                break
        else:
            changed += _archived(runs, expected, stop - 1)
        if not changed:
            return []
        self.next_offset = max(self.next_offset, *(run.last + 1 for run in changed))
        kept = [run for run in _overlaid(runs, changed) if run.first < self.next_offset]
        if kept[-1].last >= self.next_offset:
            kept[-1] = kept[-1]._replace(last=self.next_offset - 1)
        self.commit(_planned((), self.start_offset, kept))
        return acquired

    # ---- with the log ----------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, said: Iterable[Acknowledgement], *, deadline_ms: int, limits: Limits) -> Plan:
        """A member acknowledges records that it has acquired. deadline_ms: for those that it wants to keep longer.
        Raises Refused, and then nothing of it counts."""
        changed: list[Run] = []
        before = -1
        for each in said:
            if not before < each.first <= each.last or len(each.types) not in (1, each.last - each.first + 1):
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"The acknowledgement batch {each.first} to {each.last} is not valid."
                )
            if wrong := set(each.types) - _TYPES:
                raise Refused(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {min(wrong)}")
            before = each.last
            if each.last < self.start_offset:
                continue
            if each.last >= self.next_offset:
                raise Refused(ErrorCode.INVALID_REQUEST, "Batch record not found. The offsets were never acquired.")
            for first, last, kind in _spans(each):
                for run in _within(self.runs, max(first, self.start_offset), last):
                    if run.state != ACQUIRED or run.member != member:
                        raise Refused(
                            ErrorCode.INVALID_RECORD_STATE,
                            f"Records {run.first} to {run.last} are not acquired by this member.",
                        )
                    changed.append(_acknowledged(run, kind, deadline_ms, limits))
        return self._planned_change(changed)

    def release(self, member: str, limits: Limits) -> Plan | None:
        """A member leaves: what it has acquired is available again. None if it has nothing."""
        return self._released([run for run in self.runs if run.state == ACQUIRED and run.member == member], limits)

    def expire(self, now_ms: int, limits: Limits) -> Plan | None:
        """The deadlines of acquisitions have passed. None if no acquisition has ended."""
        return self._released([run for run in self.runs if run.state == ACQUIRED and run.deadline_ms <= now_ms], limits)

    def commit(self, plan: Plan) -> None:
        """Take over a plan that is in the log."""
        self.start_offset, self.runs = plan.start_offset, plan.runs

    def _released(self, runs: list[Run], limits: Limits) -> Plan | None:
        if not runs:
            return None
        return self._planned_change([_acknowledged(run, RELEASE, 0, limits) for run in runs])

    def _planned_change(self, changed: list[Run]) -> Plan:
        batches = (StateBatch(*run[:4]) for run in changed if run.state != ACQUIRED)
        return _planned(_joined(batches), self.start_offset, _overlaid(self.runs, changed))

    # ---- from the log ----------------------------------------------------------------------------------------------

    def restore(self, start_offset: int, batches: Iterable[StateBatch]) -> None:
        """Apply a record of the log. Raises ValueError for what no partition can have."""
        for batch in batches:
            if not 0 <= batch.first <= batch.last or batch.state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVED):
                raise ValueError(f"{batch} is not possible")
            if batch.last < self.start_offset:
                continue
            first = max(batch.first, self.start_offset)
            if self.next_offset < 0:
                self.start_offset = self.next_offset = start_offset if 0 <= start_offset <= first else first
            if batch.last >= self.next_offset:
                self.runs.append(Run(self.next_offset, batch.last, AVAILABLE, 0))
                self.next_offset = batch.last + 1
            self.runs = _overlaid(self.runs, [Run(first, batch.last, batch.state, batch.deliveries)])
        if start_offset >= 0:
            self.start_at(start_offset)


def _planned(batches: Iterable[StateBatch], start_offset: int, runs: list[Run]) -> Plan:
    """A plan for these runs: the start offset passes those at the beginning that are done (P3)."""
    done = 0
    while done < len(runs) and runs[done].is_done:
        start_offset = runs[done].last + 1
        done += 1
    return Plan(tuple(batches), start_offset, runs[done:])


def _acknowledged(run: Run, kind: int, deadline_ms: int, limits: Limits) -> Run:
    if kind == RENEW:
        return run._replace(deadline_ms=deadline_ms)
    if kind == ACCEPT:
        state = ACKNOWLEDGED
    else:
        state = AVAILABLE if kind == RELEASE and run.deliveries < limits.deliveries else ARCHIVED
    return Run(run.first, run.last, state, run.deliveries)


def _spans(said: Acknowledgement) -> Iterable[tuple[int, int, int]]:
    """Adjacent records that a member acknowledges in the same way: first and last offset, and the type."""
    if len(said.types) == 1:
        return [(said.first, said.last, said.types[0])]
    spans, first = [], said.first
    for kind, same in groupby(said.types):
        count = len(list(same))
        spans.append((first, first + count - 1, kind))
        first += count
    return spans


def _index(runs: Sequence[Run], offset: int) -> int:
    """The index of the run that has an offset."""
    return bisect_right(runs, offset, key=lambda run: run.first) - 1


def _within(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """The runs from first to last, cut to it."""
    if first > last or not runs:
        return []
    found = []
    for place in range(max(0, _index(runs, first)), len(runs)):
        run = runs[place]
        if run.first > last:
            break
        if run.last >= first:
            found.append(run._replace(first=max(run.first, first), last=min(run.last, last)))
    return found


def _archived(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """What is available from first to last, archived: the log has no such records."""
    return [run._replace(state=ARCHIVED) for run in _within(runs, first, last) if run.state == AVAILABLE]


def _overlaid(runs: Sequence[Run], changed: Iterable[Run]) -> list[Run]:
    """The runs with others in their place; neighbours that are the same are one run."""
    found = list(runs)
    for run in changed:
        low, high = _index(found, run.first), _index(found, run.last)
        pieces = [run]
        if found[low].first < run.first:
            pieces.insert(0, found[low]._replace(last=run.first - 1))
        if found[high].last > run.last:
            pieces.append(found[high]._replace(first=run.last + 1))
        found[low : high + 1] = pieces
    joined: list[Run] = []
    for run in found:
        if joined and joined[-1][2:] == run[2:]:
            joined[-1] = joined[-1]._replace(last=run.last)
        else:
            joined.append(run)
    return joined


def _joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    joined: list[StateBatch] = []
    for batch in sorted(batches):
        before = joined[-1] if joined else None
        if before is not None and before.last + 1 == batch.first and before[2:] == batch[2:]:
            joined[-1] = before._replace(last=batch.last)
        else:
            joined.append(batch)
    return joined
