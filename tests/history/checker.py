"""Finds what Kafka never allows in a history of operations. The names are those of Jepsen's tests of Kafka.

    inconsistent offset   two values at one offset
    duplicate             one value at two offsets, though its producer is idempotent; or at two partitions
    unknown value         a value that no client sent
    aborted read          a value of a failed send, or under read_committed of an aborted transaction
    precommitted read     a value under read_committed before its transaction was to be committed
    torn transaction      one value of a transaction under read_committed, and another one never
    lost write            acknowledged below the highest offset that was read, and never read
    unseen                acknowledged above it, and never read
    non-monotonic         a consumer got offsets in another order, or twice, within a session; the sends of an
                          idempotent producer are in another order
    skip                  a consumer passed a value that is there; a group committed past a value it never got
    two owners            two members have one partition in one generation
    committed offset back a committed offset is smaller than one that was known before
    stale end             the end of a partition is smaller than one that was known before, or than what was written or
                          read; a last stable offset above an open transaction

Legal, and so not found: offsets without a record (markers, aborted records, compaction), unknown sends that happened
or not, and without idempotence twice; open transactions whose outcome is unknown, as long as they are whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.history.facts import Facts
from tests.history.operations import Commit, Committed, End, Ended, Owned, Partition, Poll, Send


class Anomaly(NamedTuple):
    name: str
    text: str


def check(history: Iterable[Any], *, compacted: Collection[Partition] = ()) -> list[Anomaly]:
    """The anomalies of a history whose consumers have read everything at its end. compacted: the partitions whose
    older records of a key may be missing."""
    facts = Facts(history, compacted)
    return [anomaly for each in _CHECKS for anomaly in each(facts)]


def _inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    for partition, offsets in facts.values.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield Anomaly("inconsistent offset", f"{partition} offset {offset}: {sorted(values)}")


def _duplicates(facts: Facts) -> Iterator[Anomaly]:
    for value, places in facts.places.items():
        send = facts.sends.get(value)
        if send is None:
            yield Anomaly("unknown value", f"{value} at {sorted(places)}")
        elif any(partition != send.partition for partition, _ in places):
            yield Anomaly("duplicate", f"{value} was sent to {send.partition}, and is at {sorted(places)}")
        elif len(places) > 1 and (send.idempotent or send.transaction is not None):
            yield Anomaly("duplicate", f"{value} at {sorted(places)}")


def _reads_of_nothing(facts: Facts) -> Iterator[Anomaly]:
    for poll in facts.of(Poll):
        for offset, value in poll.records:
            send = facts.sends.get(value)
            if send is None:
                continue
            end = facts.ends.get(send.transaction or "")
            where = f"{value} at {poll.partition} offset {offset}, read by {poll.client}"
            if send.outcome == "fail":
                yield Anomaly("aborted read", f"{where}: its send failed")
            elif not poll.committed_only or send.transaction is None:
                continue
            elif end is None or poll.ended < end.began:
                yield Anomaly("precommitted read", f"{where}: {send.transaction} was not to be committed yet")
            elif end.outcome == "fail":
                yield Anomaly("aborted read", f"{where}: {send.transaction} was aborted")


def _torn_transactions(facts: Facts) -> Iterator[Anomaly]:
    """Those of unknown outcome; what a committed one lacks is a lost write."""
    by_transaction: dict[str, list[Send]] = defaultdict(list)
    for send in facts.of(Send):
        if send.transaction is not None:
            by_transaction[send.transaction].append(send)
    for transaction, sends in by_transaction.items():
        end = facts.ends.get(transaction)
        if end is not None and end.outcome != "unknown":
            continue
        seen = {send.value: bool(facts.places[send.value] & facts.seen_committed) for send in sends}
        if any(seen.values()):
            for send in sends:
                if send.outcome == "ok" and not seen[send.value] and not facts.was_replaced(send):
                    yield Anomaly("torn transaction", f"{transaction} was read without {send.value}")


def _lost_writes(facts: Facts) -> Iterator[Anomaly]:
    for send in facts.of(Send):
        if facts.fate(send) != "ok":
            continue
        seen = facts.seen if send.transaction is None else facts.seen_committed
        if facts.places[send.value] & seen or facts.was_replaced(send):
            continue
        lost = send.offset is not None and send.offset < facts.highest.get(send.partition, -1)
        yield Anomaly("lost write" if lost else "unseen", f"{send.value} at {send.partition} offset {send.offset}")


def _order_of_polls(facts: Facts) -> Iterator[Anomaly]:
    sessions: dict[Any, list[Poll]] = defaultdict(list)
    for poll in facts.of(Poll):
        sessions[poll.client, poll.session, poll.partition].append(poll)
    for (client, session, partition), polls in sessions.items():
        polls.sort(key=lambda each: each.number)
        offsets = [offset for poll in polls for offset, _ in poll.records]
        for before, after in pairwise(offsets):
            what = f"{client} in session {session} got {partition} offset {after} after {before}"
            if after <= before:
                yield Anomaly("non-monotonic", what)
                continue
            missed = _visible_between(facts, partition, before + 1, after, polls[0].committed_only)
            if missed:
                yield Anomaly("skip", f"{what}: without {missed[:5]}")


def _visible_between(facts: Facts, partition: Partition, low: int, high: int, committed_only: bool) -> list[int]:
    if partition in facts.compacted:
        return []
    offsets = facts.values[partition]
    inside = range(low, high) if high - low < len(offsets) else sorted(each for each in offsets if low <= each < high)
    return [each for each in inside if each in offsets and facts.is_visible(partition, each, committed_only)]


def _order_of_sends(facts: Facts) -> Iterator[Anomaly]:
    sequences: dict[Any, list[Send]] = defaultdict(list)
    for send in facts.of(Send):
        if send.outcome == "ok" and send.offset is not None and send.idempotent:
            sequences[send.client, send.partition].append(send)
    for sends in sequences.values():
        sends.sort(key=lambda each: each.number)
        for before, after in pairwise(sends):
            if (after.offset or 0) <= (before.offset or 0):
                yield Anomaly("non-monotonic", f"{after.value} at {after.offset}, sent after {before.value}"
                              f" at {before.offset} of {after.partition}")  # fmt: skip


def _skips_of_groups(facts: Facts) -> Iterator[Anomaly]:
    committed: dict[tuple[str, Partition], int] = {}
    for each in facts.of(Commit):
        if each.outcome == "ok":
            key = each.group, each.partition
            committed[key] = max(each.offset, committed.get(key, 0))
    got: dict[tuple[str, Partition], set[int]] = defaultdict(set)
    modes: dict[str, bool] = {}
    for poll in facts.of(Poll):
        if poll.group is not None:
            got[poll.group, poll.partition] |= {offset for offset, _ in poll.records}
            modes[poll.group] = poll.committed_only
    for (group, partition), end in committed.items():
        if group not in modes:
            continue  # its commits were of offsets alone
        visible = _visible_between(facts, partition, 0, end, modes[group])
        missed = [offset for offset in visible if offset not in got[group, partition]]
        if missed:
            yield Anomaly("skip", f"{group} committed {end} of {partition}, and never got {missed[:5]}")


def _two_owners(facts: Facts) -> Iterator[Anomaly]:
    owners: dict[Any, str] = {}
    for owned in facts.of(Owned):
        for partition in owned.partitions:
            owner = owners.setdefault((owned.group, owned.generation, partition), owned.client)
            if owner != owned.client:
                yield Anomaly("two owners", f"{partition} in generation {owned.generation} of {owned.group}:"
                              f" {owner} and {owned.client}")  # fmt: skip


def _offsets_going_back(facts: Facts) -> Iterator[Anomaly]:
    known: dict[Any, list[tuple[float, float, int]]] = defaultdict(list)
    for each in (*facts.of(Commit), *facts.of(Committed)):
        if isinstance(each, Committed) or each.outcome == "ok":
            known[each.group, each.partition].append((each.began, each.ended, each.offset))
    for key, found in known.items():
        for text in _falls(found):
            yield Anomaly("committed offset back", f"{key}: {text}")


def _stale_ends(facts: Facts) -> Iterator[Anomaly]:
    known: dict[Any, list[tuple[float, float, int]]] = defaultdict(list)
    ends: dict[Any, list[Ended]] = defaultdict(list)
    for each in facts.of(Ended):
        ends[each.partition, each.committed_only].append(each)
        known[each.partition, each.committed_only].append((each.began, each.ended, each.offset))
    for send in facts.of(Send):
        if send.outcome == "ok" and send.offset is not None:
            known[send.partition, False].append((send.began, send.ended, send.offset + 1))
    for poll in facts.of(Poll):
        if poll.records:
            known[poll.partition, poll.committed_only].append((poll.began, poll.ended, poll.records[-1][0] + 1))
    for key, found in known.items():
        asked = {(each.began, each.ended, each.offset) for each in ends[key]}
        for text in _falls(found, only=asked):
            yield Anomaly("stale end", f"{key}: {text}")
    yield from _ends_above_open_transactions(facts, ends)


def _ends_above_open_transactions(facts: Facts, ends: dict[Any, list[Ended]]) -> Iterator[Anomaly]:
    for send in facts.of(Send):
        if send.transaction is None or send.outcome != "ok" or send.offset is None:
            continue
        end: End | None = facts.ends.get(send.transaction)
        for asked in ends[send.partition, True]:
            is_open = asked.began > send.ended and end is not None and asked.ended < end.began
            if is_open and asked.offset > send.offset:
                yield Anomaly("stale end", f"last stable offset {asked.offset} of {send.partition}: {send.value} at"
                              f" {send.offset} is of the open {send.transaction}")  # fmt: skip


def _falls(
    known: list[tuple[float, float, int]], only: Collection[tuple[float, float, int]] | None = None
) -> Iterator[str]:
    """Offsets, each known from `ended` on and found at some time after `began`, that are smaller than one that was known
    before `began`. only: check only these."""
    by_end = sorted(known, key=lambda each: each[1])
    at, highest = 0, -1
    for began, ended, offset in sorted(known):
        while at < len(by_end) and by_end[at][1] < began:
            highest = max(highest, by_end[at][2])
            at += 1
        if offset < highest and (only is None or (began, ended, offset) in only):
            yield f"{offset} after {highest}, at {began:.3f}"


_CHECKS: tuple[Callable[[Facts], Iterator[Anomaly]], ...] = (
    _inconsistent_offsets,
    _duplicates,
    _reads_of_nothing,
    _torn_transactions,
    _lost_writes,
    _order_of_polls,
    _order_of_sends,
    _skips_of_groups,
    _two_owners,
    _offsets_going_back,
    _stale_ends,
)
