"""transactions: the state of each transactional id, from __transaction_state, and the open transactions of partitions.

The open ones come from the newest producer snapshot of a partition and the batches after it. The last stable offset is
the first offset of the oldest open transaction: consumers with isolation.level=read_committed get no record from there
on.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from klog.clock import Clock, SystemClock
from klog.errors import CorruptData
from klog.inspect.batches import Found
from klog.inspect.coordinator_log import replay
from klog.inspect.partition_files import (
    Located,
    Paths,
    batch_with,
    damage_of,
    items,
    named,
    newest_snapshot,
    partitions,
    settled,
)
from klog.inspect.replay import ProducerReplay
from klog.internal_topics.names import TRANSACTION_STATE
from klog.internal_topics.transaction_state import STATES
from klog.log.options import check_tools
from klog.values import NamedTuple

Entry = dict[str, Any]


class _Found(NamedTuple):
    """The open transactions of a partition, and its damage as text."""

    entries: list[Entry]
    problems: list[str]


def transactions(paths: Paths, *, clock: Clock | None = None) -> Entry:
    """Return {"paths", "transactions": [...], "open": [...], "problems": [...]} of log.dirs, read-only.

    A transaction: transactional_id, producer_id, producer_epoch, state, timeout_ms, partitions, start_timestamp,
    update_timestamp, and the further fields of KIP-890 where they are set. An open one: topic, partition, producer_id,
    producer_epoch, transactional_id (None if unknown), first_offset, start_timestamp, age_ms by the wall clock,
    last_stable_offset and log_end_offset of the partition, held_back: the number of offsets from first_offset to the
    log end. Times are in ms. Raises OSError.
    """
    check_tools(clock, None)
    where = named(paths)
    now = (clock or SystemClock()).wall_ms()
    found = partitions(where)
    state = replay(found, TRANSACTION_STATE)
    listed = [_transaction(latest.record.key or {}, latest.record.value or {}) for latest in state.latest.values()]
    ids = {each["producer_id"]: each["transactional_id"] for each in listed}
    still_open: list[Entry] = []
    problems, nothing = list(state.problems), _Found([], [])
    for located in found:
        entries, damage = settled(located.path, partial(_open, located, ids, now), nothing)
        still_open += entries
        problems += damage
    return {
        "paths": where,
        "transactions": sorted(listed, key=lambda each: str(each["transactional_id"])),
        "open": still_open,
        "problems": problems,
    }


def _transaction(key: Entry, value: Entry) -> Entry:
    status = value["transaction_status"]
    further = ("previous_producer_id", "next_producer_id", "client_transaction_version", "next_producer_epoch")
    return {
        "transactional_id": key["transactional_id"],
        "producer_id": value["producer_id"],
        "producer_epoch": value["producer_epoch"],
        "state": STATES.get(status, str(status)),
        "timeout_ms": value["transaction_timeout_ms"],
        "partitions": [
            [each["topic"], number]
            for each in value["transaction_partitions"] or ()
            for number in each["partition_ids"] or ()
        ],
        "start_timestamp": value["transaction_start_timestamp_ms"],
        "update_timestamp": value["transaction_last_update_timestamp_ms"],
        **{name: value[name] for name in further if name in value},
    }


def _open(located: Located, ids: dict[int, str], now: int) -> _Found:
    problems: list[str] = []
    offset, seed = newest_snapshot(located.path)
    producers, end = ProducerReplay(seed, 0), offset
    try:
        for _, item in items(located.path, offset):
            error = damage_of(item)
            if error is not None and located.topic != TRANSACTION_STATE:
                problems.append(str(error))
            if isinstance(item, Found) and item.error is None:
                end = max(end, item.batch.next_offset)
                if item.batch.base_offset >= offset:
                    producers.batch(item.position, item.batch)
    except CorruptData as error:
        problems.append(str(error))
    found = [entry for entry in producers.producers.values() if entry.current_txn_first_offset >= 0]
    stable = min((entry.current_txn_first_offset for entry in found), default=end)
    entries = []
    for entry in sorted(found, key=lambda entry: entry.current_txn_first_offset):
        first = batch_with(located.path, entry.current_txn_first_offset)
        started = -1 if first is None else first.batch.base_timestamp
        entries.append(
            {
                "topic": located.topic,
                "partition": located.partition,
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "transactional_id": ids.get(entry.producer_id),
                "first_offset": entry.current_txn_first_offset,
                "start_timestamp": started,
                "age_ms": None if started < 0 else max(0, now - started),
                "last_stable_offset": stable,
                "log_end_offset": end,
                "held_back": end - entry.current_txn_first_offset,
            }
        )
    return _Found(entries, problems)
