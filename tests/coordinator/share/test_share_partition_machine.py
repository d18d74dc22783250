"""A share partition with random members, timeouts and restarts, compared with a model that has a state for each record."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klog.coordinator.groups.refusal import Refused
from klog.coordinator.share.share_partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Limits,
    Plan,
    SharePartition,
    StateBatch,
)

MEMBERS = st.sampled_from(["a", "b", "c"])
LOCK_MS = 100


class Record:
    """The state of one record in the model."""

    def __init__(self) -> None:
        self.state, self.count, self.member, self.deadline_ms = AVAILABLE, 0, "", 0

    def finish(self, kind: int, limit: int) -> None:
        if kind == ACCEPT:
            self.state = ACKNOWLEDGED
        else:
            self.state = AVAILABLE if kind == RELEASE and self.count < limit else ARCHIVED
        self.member = ""


class Machine(RuleBasedStateMachine):
    """The log is a row of batches. Some are missing, as after compaction, or are not for consumers, as markers."""

    @initialize(
        sizes=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=12),
        deliveries=st.integers(1, 3),
        records=st.integers(1, 12),
    )
    def begin(self, sizes: list[tuple[int, bool]], deliveries: int, records: int) -> None:
        self.now = 0
        self.limits = Limits(deliveries, records)
        self.batches, self.model, offset = [], {}, 0
        for size, exists in sizes:
            if exists:
                self.batches.append((offset, offset + size - 1))
                self.model |= {each: Record() for each in range(offset, offset + size)}
            offset += size
        self.end = offset
        self.partition = SharePartition(0)
        self.written: list[tuple[int, tuple[StateBatch, ...]]] = []

    def write(self, plan: Plan | None) -> None:
        if plan is not None:
            if plan.batches:
                self.written.append((plan.start_offset, plan.batches))
            self.partition.commit(plan)

    @rule(member=MEMBERS, max_records=st.integers(0, 8), exact=st.booleans(), batches=st.integers(1, 4))
    def acquire(self, member: str, max_records: int, exact: bool, batches: int) -> None:
        begin = self.partition.fetch_offset(self.limits)
        if begin is None or begin >= self.end:
            return
        read = [batch for batch in self.batches if batch[1] >= begin][:batches]
        whole = len(read) < batches
        stop = self.end if whole else read[-1][1] + 1
        found = self.partition.acquire(
            member, read, stop, max_records=max_records, exact=exact, deadline_ms=self.now + LOCK_MS, limits=self.limits
        )
        offsets = [offset for each in found for offset in range(each.first, each.last + 1)]
        assert len(set(offsets)) == len(offsets)
        for each in found:
            for offset in range(each.first, each.last + 1):
                record = self.model[offset]  # KeyError: a record that does not exist
                assert record.state == AVAILABLE and each.deliveries == record.count + 1
                record.state, record.count = ACQUIRED, record.count + 1
                record.member, record.deadline_ms = member, self.now + LOCK_MS
        if exact:
            assert len(offsets) <= max_records
        if any(self.model[offset].count == self.limits.deliveries > 1 for offset in offsets):
            assert len(offsets) == 1

    @rule(data=st.data(), member=MEMBERS, kind=st.sampled_from([GAP, ACCEPT, RELEASE, REJECT, RENEW]))
    def acknowledge(self, data: st.DataObject, member: str, kind: int) -> None:
        mine = [offset for offset, record in self.model.items() if record.member == member]
        if not mine:
            return
        first = data.draw(st.sampled_from(mine))
        last = first
        while last + 1 in mine and data.draw(st.booleans()):
            last += 1
        kinds = [data.draw(st.sampled_from([ACCEPT, RELEASE])) if kind == GAP else kind for _ in range(first, last + 1)]
        types: list[int] = kinds if kind == GAP else [kind]
        plan = self.partition.acknowledge(
            member, [Acknowledgement(first, last, types)], deadline_ms=self.now + LOCK_MS, limits=self.limits
        )
        self.write(plan)
        for offset, each in zip(range(first, last + 1), kinds, strict=True):
            if each == RENEW:
                self.model[offset].deadline_ms = self.now + LOCK_MS
            else:
                self.model[offset].finish(each, self.limits.deliveries)

    @rule(offset=st.integers(0, 40), member=MEMBERS)
    def acknowledge_a_record_of_another_member(self, offset: int, member: str) -> None:
        record = self.model.get(offset)
        if offset < self.partition.start_offset or (record is not None and record.member == member):
            return
        before = repr(self.partition)
        try:
            self.partition.acknowledge(
                member, [Acknowledgement(offset, offset, [ACCEPT])], deadline_ms=0, limits=self.limits
            )
        except Refused:
            assert repr(self.partition) == before
        else:
            raise AssertionError(f"{member} acknowledged {offset}")

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.write(self.partition.release(member, self.limits))
        for record in self.model.values():
            if record.member == member:
                record.finish(RELEASE, self.limits.deliveries)

    @rule(ms=st.integers(1, 150))
    def wait(self, ms: int) -> None:
        self.now += ms
        self.write(self.partition.expire(self.now, self.limits))
        for record in self.model.values():
            if record.member and record.deadline_ms <= self.now:
                record.finish(RELEASE, self.limits.deliveries)

    @rule(snapshot=st.booleans())
    def restart(self, snapshot: bool) -> None:
        """Acquired records are available again. Acquisitions are not stored, so their delivery counts are lost."""
        found = SharePartition(0)
        if snapshot:
            found.restore(self.partition.start_offset, self.partition.state_batches())
        else:
            for start_offset, batches in self.written:
                found.restore(start_offset, batches)
        self.partition = found
        self.written = [(found.start_offset, tuple(found.state_batches()))]
        known = {offset: run for run in found.runs for offset in range(run.first, run.last + 1)}
        for offset, record in self.model.items():
            run = known.get(offset)
            if record.state == ACQUIRED:
                record.state, record.member = AVAILABLE, ""
            if record.state == AVAILABLE:
                assert offset >= found.start_offset
                record.count = 0 if run is None else run.deliveries

    @precondition(lambda self: hasattr(self, "partition"))
    @rule(below=st.integers(0, 40))
    def delete_records(self, below: int) -> None:
        self.partition.start_at(min(below, self.end))
        for offset, record in self.model.items():
            if offset < min(below, self.end):
                record.state, record.member = ARCHIVED, ""
        self.written.append((self.partition.start_offset, ()))

    @invariant()
    def runs_are_in_order(self) -> None:
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        expected = partition.start_offset
        for run in partition.runs:
            assert (run.first, run.last >= run.first) == (expected, True)
            expected = run.last + 1
            assert (run.state == ACQUIRED) == bool(run.member)
        assert expected == partition.next_offset or not partition.runs
        assert not partition.runs or not partition.runs[0].is_done

    @invariant()
    def records_are_as_in_the_model(self) -> None:
        if not hasattr(self, "partition"):
            return
        known: dict[int, Any] = {
            offset: run for run in self.partition.runs for offset in range(run.first, run.last + 1)
        }
        for offset, record in self.model.items():
            run = known.get(offset)
            if offset < self.partition.start_offset:
                assert record.state in (ACKNOWLEDGED, ARCHIVED), offset
            elif run is None:
                assert record.state == AVAILABLE or self.partition.next_offset <= offset, offset
            else:
                assert (run.state, run.deliveries, run.member) == (record.state, record.count, record.member), offset
                if run.member:
                    assert run.deadline_ms == record.deadline_ms

    def teardown(self) -> None:
        """In the end each record is acknowledged, archived, or can be delivered."""
        if not hasattr(self, "partition"):
            return
        self.now += LOCK_MS
        self.wait(LOCK_MS)
        left = {offset for offset, record in self.model.items() if record.state == AVAILABLE}
        got = set()
        for _ in range(200):
            begin = self.partition.fetch_offset(self.limits)
            assert begin is not None
            if begin >= self.end:
                break
            read = [batch for batch in self.batches if batch[1] >= begin]
            found = self.partition.acquire(
                "z", read, self.end, max_records=5, exact=False, deadline_ms=self.now + 1, limits=self.limits
            )
            acknowledgements = [Acknowledgement(each.first, each.last, [ACCEPT]) for each in found]
            self.partition.commit(self.partition.acknowledge("z", acknowledgements, deadline_ms=0, limits=self.limits))
            got |= {offset for each in found for offset in range(each.first, each.last + 1)}
        assert got == left
        assert self.partition.start_offset == self.partition.next_offset == self.end


TestSharePartition = Machine.TestCase
