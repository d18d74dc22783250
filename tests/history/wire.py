"""Clients of a few lines that talk the protocol themselves: no retries, so that their outcomes are facts.

WireProducer   one attempt for each record: ok, fail, or unknown after a lost connection
WireReader     fetches whole partitions; drops aborted records by the broker's list of them, as a consumer does
Watcher        asks for ends of partitions and for committed offsets
WireMember     a member of a classic group that records what each generation gives it
"""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import decode, encode
from tests.history.operations import Committed, Ended, Outcome, Owned, Partition, Poll, Send
from tests.history.recording import History, Worker, now
from tests.support.wire_client import WireClient

TIMEOUT = 10.0
_MAYBE = {int(ErrorCode.REQUEST_TIMED_OUT), int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.KAFKA_STORAGE_ERROR)}
LOST = (OSError, ConnectionError)


class Wired(Worker):
    """A worker with a connection that is made again when it is lost."""

    def __init__(self, name: str, address: str, history: History) -> None:
        super().__init__(name, history)
        self.address = address
        self._client: WireClient | None = None

    def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Raises one of LOST."""
        if self._client is None:
            self._client = WireClient(self.address, self.name)
            self._client.socket.settimeout(TIMEOUT)
        try:
            return self._client.call(api, version, **fields)
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.socket.close()

    def close(self) -> None:
        self.drop()


class WireProducer(Wired):
    """Neither idempotent nor retrying."""

    def __init__(self, name: str, address: str, history: History, partitions: list[Partition], seed: int) -> None:
        super().__init__(name, address, history)
        self.partitions = partitions
        self.chance = random.Random(seed)

    def step(self) -> None:
        partition = self.chance.choice(self.partitions)
        number = self.history.number()
        value = f"{self.name}-{number}"
        Request = messages.Produce.Request
        records = encode([(b"k", value.encode(), int(time.time() * 1000))])
        topic = Request.Topic(
            name=partition[0], partition_data=[Request.Partition(index=partition[1], records=records)]
        )
        began, offset = now(), None
        outcome: Outcome = "unknown"
        try:
            response = self.call(
                ApiKey.PRODUCE, 9, acks=self.chance.choice((1, -1)), timeout_ms=5000, topic_data=[topic]
            )
            found = response.responses[0].partition_responses[0]
            if found.error_code == 0:
                outcome, offset = "ok", found.base_offset
            elif found.error_code not in _MAYBE:
                outcome = "fail"
        except LOST:
            pass
        self.history.add(
            Send(client=self.name, began=began, ended=now(), partition=partition, value=value, outcome=outcome,
                 number=number, offset=offset)
        )  # fmt: skip
        self.ending.wait(self.chance.random() * 0.05)


class WireReader(Wired):
    """Reads its partitions from their begin. A new session after every lost connection, from the same position."""

    def __init__(
        self, name: str, address: str, history: History, partitions: Iterable[Partition], *, committed_only: bool
    ) -> None:
        super().__init__(name, address, history)
        self.positions = dict.fromkeys(partitions, 0)
        self.committed_only = committed_only
        self.ends: dict[Partition, int] = {}

    def step(self) -> None:
        for partition in self.positions:
            try:
                self.read(partition)
            except LOST:
                self.ending.wait(0.05)
        self.ending.wait(0.03)

    def read(self, partition: Partition) -> bool:
        """Fetch once. Returns whether the end was reached: all of it, and nothing open before it."""
        position = self.positions[partition]
        Request = messages.Fetch.Request
        asked = Request.Partition(partition=partition[1], fetch_offset=position, partition_max_bytes=1 << 16)
        began = now()
        response = self.call(
            ApiKey.FETCH, 12, max_wait_ms=50, min_bytes=1, max_bytes=1 << 20, isolation_level=int(self.committed_only),
            topics=[Request.Topic(topic=partition[0], partitions=[asked])],
        )  # fmt: skip
        if response.error_code or not response.responses:
            return False
        found = response.responses[0].partitions[0]
        if found.error_code:
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.history.fail(f"{self.name}: {partition} offset {position} is out of range")
            return False
        data = bytes(found.records) if found.records is not None else b""
        records, following = self._records(data, position, found.aborted_transactions or [])
        if records:
            self.history.add(
                Poll(client=self.name, began=began, ended=now(), partition=partition, records=tuple(records), session=1,
                     number=self.history.number(), committed_only=self.committed_only)
            )  # fmt: skip
        self.positions[partition] = following
        return following >= found.high_watermark and found.last_stable_offset in (-1, found.high_watermark)

    def _records(self, data: bytes, position: int, aborted: list[Any]) -> tuple[list[tuple[int, str]], int]:
        """What a consumer returns, and the next offset to fetch."""
        waiting = sorted(aborted, key=lambda each: each.first_offset)
        dropped: set[int] = set()
        records: list[tuple[int, str]] = []
        for batch in decode(data):
            while waiting and waiting[0].first_offset <= batch.last_offset:
                dropped.add(waiting.pop(0).producer_id)
            if batch.is_control:
                dropped.discard(batch.producer_id)
            elif not (self.committed_only and batch.is_transactional and batch.producer_id in dropped):
                records += [(each.offset, (each.value or b"").decode()) for each in batch if each.offset >= position]
            position = max(position, batch.last_offset + 1)
        return records, position

    def drain(self, seconds: float) -> list[str]:
        """Read all to the end. Returns what could not be read."""
        deadline = now() + seconds
        left = list(self.positions)
        while left and now() < deadline:
            try:
                if self.read(left[0]):
                    left.pop(0)
            except LOST:
                time.sleep(0.05)
        self.close()
        return [f"{self.name}: {each} stands at {self.positions[each]}" for each in left]


class Watcher(Wired):
    """Looks at what the broker says of partitions and groups."""

    def __init__(
        self, name: str, address: str, history: History, partitions: list[Partition], groups: list[str], seed: int
    ) -> None:
        super().__init__(name, address, history)
        self.partitions = partitions
        self.groups = groups
        self.chance = random.Random(seed)

    def step(self) -> None:
        try:
            self.ends(committed_only=self.chance.random() < 0.5)
            for group in self.groups:
                self.committed(group)
        except LOST:
            pass
        self.ending.wait(0.1)

    def ends(self, *, committed_only: bool) -> dict[Partition, int]:
        Request = messages.ListOffsets.Request
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in self.partitions:
            by_topic[topic].append(partition)
        began = now()
        response = self.call(
            ApiKey.LIST_OFFSETS, 6, replica_id=-1, isolation_level=int(committed_only),
            topics=[
                Request.Topic(
                    name=topic, partitions=[Request.Partition(partition_index=each, timestamp=-1) for each in indexes]
                )
                for topic, indexes in by_topic.items()
            ],
        )  # fmt: skip
        found: dict[Partition, int] = {}
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code == 0:
                    found[topic.name, each.partition_index] = each.offset
                    self.history.add(
                        Ended(client=self.name, began=began, ended=now(), offset=each.offset,
                              partition=(topic.name, each.partition_index), committed_only=committed_only)
                    )  # fmt: skip
        return found

    def committed(self, group: str) -> dict[Partition, int]:
        """The offsets that are known for good."""
        Request = messages.OffsetFetch.Request
        began = now()
        response = self.call(
            ApiKey.OFFSET_FETCH, 8, groups=[Request.Group(group_id=group, topics=None)], require_stable=True
        )
        found: dict[Partition, int] = {}
        for each in response.groups:
            for topic in each.topics:
                for partition in topic.partitions:
                    if each.error_code == 0 and partition.error_code == 0 and partition.committed_offset >= 0:
                        found[topic.name, partition.partition_index] = partition.committed_offset
                        self.history.add(
                            Committed(client=self.name, began=began, ended=now(), group=group,
                                      partition=(topic.name, partition.partition_index),
                                      offset=partition.committed_offset)
                        )  # fmt: skip
        return found


class WireMember(Wired):
    """Joins, assigns round robin if it leads, heartbeats; sometimes it leaves, sometimes it only stops."""

    def __init__(self, name: str, address: str, history: History, group: str, partitions: list[Partition], seed: int):
        super().__init__(name, address, history)
        self.group = group
        self.partitions = partitions
        self.chance = random.Random(seed)
        self.member = ""
        self.joined = False
        self.generation = -1

    def step(self) -> None:
        try:
            if not self.joined:
                self._join()
            else:
                self._heartbeat()
        except LOST:
            self.joined = False
            self.ending.wait(0.1)
        self.ending.wait(0.05)

    def _join(self) -> None:
        Request = messages.JoinGroup.Request
        response = self.call(
            ApiKey.JOIN_GROUP, 6, group_id=self.group, session_timeout_ms=6000, rebalance_timeout_ms=3000,
            member_id=self.member, protocol_type="consumer",
            protocols=[Request.Protocol(name="turns", metadata=struct.pack(">hih", 0, 0, -1))],
        )  # fmt: skip
        if response.error_code:
            self.member = response.member_id if response.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
            return
        self.member, self.generation = response.member_id, response.generation_id
        asked = [each.member_id for each in response.members]
        Given = messages.SyncGroup.Request.Assignment
        given = [
            Given(
                member_id=member,
                assignment=b",".join(b"%d" % at for at in range(len(self.partitions)) if at % len(asked) == turn),
            )
            for turn, member in enumerate(asked)
        ]
        began = now()
        synced = self.call(
            ApiKey.SYNC_GROUP, 4, group_id=self.group, generation_id=self.generation, member_id=self.member,
            assignments=given if response.leader == self.member else [],
        )  # fmt: skip
        if synced.error_code:
            return
        self.joined = True
        owned = tuple(self.partitions[int(each)] for each in bytes(synced.assignment).split(b",") if each)
        self.history.add(
            Owned(client=self.member, began=began, ended=now(), group=self.group, generation=self.generation,
                  partitions=owned)
        )  # fmt: skip

    def _heartbeat(self) -> None:
        response = self.call(
            ApiKey.HEARTBEAT, 3, group_id=self.group, generation_id=self.generation, member_id=self.member
        )
        if response.error_code:
            self.joined = False
            if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member = ""
        elif self.chance.random() < 0.02:
            self._leave()

    def _leave(self) -> None:
        Member = messages.LeaveGroup.Request.Member
        self.joined = False
        member, self.member = self.member, ""
        self.call(ApiKey.LEAVE_GROUP, 3, group_id=self.group, members=[Member(member_id=member)])
