"""groups: consumer groups of a directory, from __consumer_offsets: members, committed offsets, lag.

States are those that a coordinator derives when it loads the topic. An offset of a group without members expires
offsets.retention.minutes after its commit, or after the group became empty, if that was later; 7 days, Kafka's default.
Named readers of klog are listed beside the groups.
Kafka: GroupMetadataManager, ClassicGroup, ConsumerGroup, OffsetExpirationConditionImpl.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from klog import arguments
from klog.clock import Clock, SystemClock
from klog.inspect.coordinator_log import Replayed, replay
from klog.inspect.listing import ls
from klog.inspect.partition_files import Paths, named, partitions
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.internal_topics.tables import Decoded
from klog.log.directory.reader_positions import stored_positions
from klog.log.options import check_tools
from klog.values import NamedTuple

Entry = dict[str, Any]
OFFSETS_RETENTION_MS = 7 * 24 * 60 * 60 * 1000  # offsets.retention.minutes
_STABLE = 0  # MemberState of a consumer, share or streams group


def groups(paths: Paths, group: str | None = None, *, clock: Clock | None = None) -> Entry:
    """Return {"paths", "groups": [...], "readers": [...], "problems": [...]} of log.dirs, read-only.

    A group: group, type (classic, consumer, share or streams), state, protocol_type, protocol, generation (the epoch of
    newer types), leader, members, offsets (each with log_end_offset and lag, which are None if the partition is not
    in the log.dirs) and pending: offsets of open transactions. group: only this one. Times are in ms. Raises OSError.
    """
    if group is not None:
        group = arguments.text("group", group)
    check_tools(clock, None)
    where = named(paths)
    now = (clock or SystemClock()).wall_ms()
    located = partitions(where)
    ends, names, unread = _log_ends(where, {each.path for each in located})
    state = replay(located, CONSUMER_OFFSETS)
    found = _by_group(state, group)
    return {
        "paths": where,
        "groups": [_Group(name, records, names).entry(ends, now) for name, records in sorted(found.items())],
        "readers": [] if group is not None else [each for path in where for each in _readers(path, ends)],
        "problems": state.problems + unread,
    }


Ends = Mapping[tuple[str, int], int | None]


def _log_ends(where: Iterable[str], located: Container[str]) -> tuple[Ends, Mapping[str, str], list[str]]:
    """Return {(topic, partition): log end}, {topic id: topic}, and why a log end is not known. located: the directories
    of partitions; others are left over from a move."""
    ends: dict[tuple[str, int], int | None] = {}
    names: dict[str, str] = {}
    unread = []
    for path in where:
        for topic in ls(path)["topics"]:
            if topic["topic_id"] is not None:
                names[topic["topic_id"]] = topic["topic"]
            for entry in (each for each in topic["partitions"] if each["path"] in located):
                ends[entry["topic"], entry["partition"]] = entry["log_end_offset"]
                if entry["log_end_offset"] is None:
                    unread.append(f"{entry['path']}: {entry['problem']}")
    return ends, names, unread


class _Records(NamedTuple):
    """The records of one group. pending: of open transactions, with the producer id."""

    latest: list[Decoded]
    pending: list[tuple[int, Decoded]]


def _by_group(state: Replayed, only: str | None) -> dict[str, _Records]:
    found: dict[str, _Records] = {}

    def of(key: tuple[Any, ...]) -> _Records | None:
        name = str(key[1])  # the first field of every key
        return found.setdefault(name, _Records([], [])) if only in (None, name) else None

    for key, latest in state.latest.items():
        if (records := of(key)) is not None:
            records.latest.append(latest.record)
    for producer_id, waiting in state.pending.items():
        for key, latest in waiting.items():
            if (records := of(key)) is not None:
                records.pending.append((producer_id, latest.record))
    return found


class _Group:
    """One group, from its latest records."""

    def __init__(self, name: str, records: _Records, topic_names: Mapping[str, str]) -> None:
        self._name, self._records, self._topics = name, records, topic_names
        self._by_type: dict[str, list[Decoded]] = {}
        for record in records.latest:
            self._by_type.setdefault(record.type, []).append(record)

    def entry(self, ends: Ends, now: int) -> Entry:
        """Return the entry of the group."""
        head = self._classic() or self._newer() or self._without_metadata()
        offsets = [
            self._offset(record, head, ends, now)
            for record in self._records.latest
            if record.type.endswith("offset_commit")
        ]
        pending = [
            {"producer_id": producer_id, **self._offset(record, head, ends, now)}
            for producer_id, record in self._records.pending
            if record.type.endswith("offset_commit") and record.value is not None
        ]
        for listed in (offsets, pending):
            listed.sort(key=lambda offset: (offset["topic"], offset["partition"]))
        return {"group": self._name, **head, "offsets": offsets, "pending": pending}

    def _one(self, kind: str) -> Entry | None:
        found = self._by_type.get(kind)
        return found[0].value if found else None

    def _classic(self) -> Entry | None:
        value = self._one("group_metadata")
        if value is None:
            return None
        members = [
            {
                "member_id": member["member_id"],
                "instance_id": member.get("group_instance_id"),
                "client_id": member["client_id"],
                "client_host": member["client_host"],
                "assignment": _assigned(member["assignment"]),
            }
            for member in value["members"] or ()
        ]
        return {
            "type": "classic",
            "state": "Stable" if members else "Empty",
            "state_timestamp": value.get("current_state_timestamp", -1),
            "protocol_type": value["protocol_type"],
            "protocol": value["protocol"],
            "generation": value["generation"],
            "leader": value["leader"],
            "members": members,
        }

    def _newer(self) -> Entry | None:
        """Return the fields of a consumer, share or streams group (KIP-848, 932, 1071); None if it is not one."""
        for kind in ("consumer", "share", "streams"):
            value = self._one(f"{kind}_group_metadata")
            if value is not None:
                current = {
                    record.key["member_id"]: record.value
                    for record in self._by_type.get(f"{kind}_group_current_member_assignment", ())
                    if record.key is not None and record.value is not None
                }
                members = [
                    self._member(record, current) for record in self._by_type.get(f"{kind}_group_member_metadata", ())
                ]
                target = self._one(f"{kind}_group_target_assignment_metadata") or {"assignment_epoch": 0}
                assigned = [current.get(member["member_id"]) for member in members]
                return {
                    "type": kind,
                    "state": _state(value["epoch"], target["assignment_epoch"], assigned),
                    "state_timestamp": -1,
                    "protocol_type": kind,
                    "protocol": None,
                    "generation": value["epoch"],
                    "leader": None,
                    "members": sorted(members, key=lambda member: str(member["member_id"])),
                }
        return None

    def _member(self, record: Decoded, current: Mapping[str, Entry]) -> Entry:
        key, value = record.key or {}, record.value or {}
        assigned = current.get(key["member_id"], {}).get("assigned_partitions") or ()
        return {
            "member_id": key["member_id"],
            "instance_id": value.get("instance_id"),
            "client_id": value["client_id"],
            "client_host": value["client_host"],
            "assignment": [
                [self._topics.get(each["topic_id"], each["topic_id"]), number]
                for each in assigned
                for number in each["partitions"] or ()
            ],
        }

    def _without_metadata(self) -> Entry:
        """Return the fields of a group with offsets alone: of a consumer that assigns its partitions itself."""
        return {
            "type": "classic",
            "state": "Empty",
            "state_timestamp": -1,
            "protocol_type": "",
            "protocol": None,
            "generation": 0,
            "leader": None,
            "members": [],
        }

    def _offset(self, record: Decoded, head: Entry, ends: Ends, now: int) -> Entry:
        key, value = record.key or {}, record.value or {}
        where = key["topic"], key["partition"]
        end = ends.get(where)
        expire = value.get("expire_timestamp", -1)
        if expire < 0 and not head["members"]:
            since = head["state_timestamp"] if head["protocol_type"] else -1
            expire = (since if since >= 0 else value["commit_timestamp"]) + OFFSETS_RETENTION_MS
        return {
            "topic": where[0],
            "partition": where[1],
            "offset": value["offset"],
            "leader_epoch": value.get("leader_epoch", -1),
            "metadata": value["metadata"],
            "commit_timestamp": value["commit_timestamp"],
            "expire_timestamp": expire,
            "expired": 0 <= expire <= now,
            "log_end_offset": end,
            "lag": None if end is None else max(0, end - value["offset"]),
        }


def _state(epoch: int, assigned: int, members: list[Entry | None]) -> str:
    """Kafka: ConsumerGroup.maybeUpdateGroupState."""
    if not members:
        return "Empty"
    if epoch > assigned:
        return "Assigning"
    settled = all(
        member is not None and member["member_epoch"] == assigned and member["state"] == _STABLE for member in members
    )
    return "Stable" if settled else "Reconciling"


def _assigned(assignment: Any) -> list[list[Any]] | None:
    """Return [[topic, partition], ...]; None for bytes in a format that is not a consumer's."""
    if not isinstance(assignment, dict):
        return None if assignment else []
    listed = assignment["assigned_partitions"] or ()
    return [[each["topic"], number] for each in listed for number in each["partitions"] or ()]


def _readers(path: str, ends: Ends) -> list[Entry]:
    """Return the positions of klog's named readers in a log.dir."""
    stored, problems = stored_positions(path)
    found: list[Entry] = [{"reader": name, "problem": str(error)} for name, error in problems.items()]
    for name, topics in stored.items():
        for topic, committed in sorted(topics.items()):
            for number, offset in sorted(committed.positions.items()):
                end = ends.get((topic, number))
                lag = None if end is None else max(0, end - offset)
                found.append(
                    {
                        "reader": name,
                        "topic": topic,
                        "partition": number,
                        "offset": offset,
                        "log_end_offset": end,
                        "lag": lag,
                        "problem": None,
                    }
                )
    return found
