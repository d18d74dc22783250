"""Random members join, sync, send heartbeats, leave, die and commit, while these invariants must hold.

one owner      a partition has at most one owner in a generation
rising         generations of a group rise
one response   a request gets exactly one response, unless the broker dies before it
durable        a coordinator that loads the log has the same offsets, and each group in its last stored generation
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klog.coordinator.groups import GroupCoordinator
from klog.coordinator.groups.classic_group import ClassicGroup
from klog.protocol import ErrorCode
from klog.scheduler import Scheduler
from tests.coordinator.harness import Call, Groups
from tests.support.examples import examples
from tests.support.in_memory import memory

GROUPS = st.sampled_from(("g", "h"))
PARTITIONS = 3
LONGEST_MS = 400_000  # every deadline, and a rebalance after it
RETRIED = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class Client:
    """A consumer that follows the protocol: join, sync, heartbeat."""

    def __init__(self, group: str, instance: str | None) -> None:
        self.group = group
        self.instance = instance
        self.member = ""
        self.generation = -1
        self.joining: Call | None = None
        self.joined: Any = None
        self.syncing: Call | None = None
        self.owns: set[int] = set()


class GroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="klog-groups-", dir=memory())
        self.g = Groups(Path(self.path), partitions=2, topics={"t": PARTITIONS})
        self.clients: list[Client] = []
        self.dead: list[Client] = []
        self.generations: dict[str, int] = {}
        self.owners: dict[tuple[str, int, int], str] = {}
        self.committed: dict[str, dict[tuple[str, int], int]] = {}
        self.pending: dict[int, tuple[str, dict[tuple[str, int], int]]] = {}
        self.next_producer = 1

    def teardown(self) -> None:
        self.g.clock.advance(LONGEST_MS)
        self.settle()
        self.g.clock.advance(LONGEST_MS)
        assert all(call.done for call in self.g.calls), "a request got no response"
        self.g.close()
        shutil.rmtree(self.path)

    # ---- clients -----------------------------------------------------------------------------------------------------

    @rule(group=GROUPS, instance=st.sampled_from((None, None, None, "i", "j")))
    def arrive(self, group: str, instance: str | None) -> None:
        if len(self.clients) < 6:
            client = Client(group, instance)
            self.clients.append(client)
            self.join(client)

    def join(self, client: Client) -> None:
        client.joined = client.syncing = None
        client.owns = set()
        client.joining = self.g.join(
            client.group, client.member, instance=client.instance, session=6_000 + len(self.clients), rebalance=9_000
        )

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 5), again=st.booleans())
    def act(self, pick: int, again: bool) -> None:
        """Let one client take its next step."""
        client = self.clients[pick % len(self.clients)]
        if client.joining is not None:
            if client.joining.done:
                self.handle_join(client, client.joining)
            elif again:
                self.join(client)
        elif client.syncing is not None:
            if client.syncing.done:
                self.handle_sync(client, client.syncing)
        elif again:
            self.join(client)
        else:
            self.heartbeat(client)

    def handle_join(self, client: Client, call: Call) -> None:
        response, client.joining = call.response, None
        if call.code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member = response.member_id
            self.join(client)
        elif call.code is ErrorCode.NONE:
            client.member, client.generation, client.joined = response.member_id, response.generation_id, response
            parts = None
            if response.members and not response.skip_assignment:
                names = [each.member_id for each in response.members]
                assert len(names) == len(set(names))
                assert response.leader == client.member
                parts = {
                    name: bytes(n for n in range(PARTITIONS) if n % len(names) == at) for at, name in enumerate(names)
                }
            client.syncing = self.g.sync(client.group, response, parts, instance=client.instance)
        elif call.code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
            self.clients.remove(client)
        else:
            assert call.code in (ErrorCode.UNKNOWN_MEMBER_ID, *RETRIED), call.code
            self.fail(client, call.code)

    def handle_sync(self, client: Client, call: Call) -> None:
        client.syncing = None
        if call.code is ErrorCode.NONE:
            client.owns = set(call.response.assignment)
            for partition in client.owns:
                # A static member that restarts takes over the partitions of its old member id.
                owner = client.instance or client.member
                assert self.owners.setdefault((client.group, client.generation, partition), owner) == owner
        elif call.code is ErrorCode.FENCED_INSTANCE_ID:
            self.clients.remove(client)
        else:
            assert call.code in (ErrorCode.UNKNOWN_MEMBER_ID, *RETRIED), call.code
            self.fail(client, call.code)

    def heartbeat(self, client: Client) -> None:
        code = self.g.heartbeat(client.group, client.member, client.generation, instance=client.instance)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.clients.remove(client)
        elif code is not ErrorCode.NONE:
            assert code in (ErrorCode.UNKNOWN_MEMBER_ID, *RETRIED), code
            self.fail(client, code)

    def fail(self, client: Client, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member = ""
        self.join(client)

    def settle(self) -> None:
        """Let all clients take steps until none of them waits for a response."""
        for _ in range(200):
            waiting = [each for each in self.clients if each.joining or each.syncing]
            if not waiting:
                break
            for client in list(self.clients):
                if client in self.clients:
                    if client.joining is not None and client.joining.done:
                        self.handle_join(client, client.joining)
                    elif client.syncing is not None and client.syncing.done:
                        self.handle_sync(client, client.syncing)
                    elif client.joining is None and client.syncing is None:
                        self.heartbeat(client)
            self.g.clock.advance(500)

    @rule()
    def converge(self) -> None:
        """Members that follow the protocol all get their responses, and in a stable group no partition has two owners."""
        self.settle()
        assert not any(each.joining or each.syncing for each in self.clients)
        for group in ("g", "h"):
            alive = [each for each in self.clients if each.group == group]
            current = [each for each in alive if each.generation == self.generations.get(group)]
            if alive and len(current) == len(alive) and self.g.state(group) == "Stable":
                owned = [partition for each in current for partition in each.owns]
                assert len(owned) == len(set(owned))

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 5))
    def leave(self, pick: int) -> None:
        client = self.clients.pop(pick % len(self.clients))
        self.g.leave(client.group, client.member, instance=client.instance if client.member else None)

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 5))
    def die(self, pick: int) -> None:
        self.clients.pop(pick % len(self.clients))

    @rule(ms=st.sampled_from((1, 500, 3_000, 6_000, 10_000)))
    def wait(self, ms: int) -> None:
        self.g.clock.advance(ms)

    # ---- offsets -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 5), partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 99))
    def commit(self, pick: int, partition: int, offset: int) -> None:
        client = self.clients[pick % len(self.clients)]
        partition_key = "t", partition
        codes = self.g.commit(
            client.group,
            {partition_key: offset},
            member=client.member,
            generation=client.generation,
            group_instance_id=client.instance,
        )
        if codes[partition_key] is ErrorCode.NONE:
            self.committed.setdefault(client.group, {})[partition_key] = offset
            for group, offsets in self.pending.values():
                if group == client.group:
                    offsets.pop(partition_key, None)  # the later record counts

    @rule(group=GROUPS, partition=st.integers(0, PARTITIONS - 1), offset=st.integers(100, 199))
    def commit_in_transaction(self, group: str, partition: int, offset: int) -> None:
        producer, self.next_producer = self.next_producer, self.next_producer + 1
        codes = self.g.txn_commit(group, {("t", partition): offset}, producer=(producer, 0), version=2)
        assert codes[("t", partition)] is ErrorCode.NONE
        self.pending[producer] = group, {("t", partition): offset}

    @precondition(lambda self: self.pending)
    @rule(pick=st.integers(0, 9), committed=st.booleans())
    def end(self, pick: int, committed: bool) -> None:
        producer = sorted(self.pending)[pick % len(self.pending)]
        group, offsets = self.pending.pop(producer)
        self.g.end(group, committed, (producer, 0))
        if committed:
            self.committed.setdefault(group, {}).update(offsets)
            for other, (name, waiting) in self.pending.items():
                if name == group and other < producer:
                    for partition_key in offsets:
                        waiting.pop(partition_key, None)

    # ---- invariants --------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """The broker dies. Requests that wait never get a response, and the clients send them again."""
        self.g.calls = [call for call in self.g.calls if call.done]
        self.g.restart()
        self.generations.clear()  # a generation that was not stored is used again
        for client in self.clients:
            if (client.joining and not client.joining.done) or (client.syncing and not client.syncing.done):
                self.join(client)

    @invariant()
    def offsets_are_those_that_were_committed(self) -> None:
        for group in ("g", "h"):
            assert self.g.offsets(group) == self.committed.get(group, {})

    @invariant()
    def a_second_coordinator_loads_the_same(self) -> None:
        table = self.g.coordinator.table
        again = GroupCoordinator(self.g.topics, Scheduler(self.g.clock), self.g.clock)
        again.load()
        assert again.table.offsets == table.offsets
        for group in table.groups():
            loaded = again.table.get(group.group_id)
            assert loaded is not None
            if group.state in ("Stable", "Empty"):
                assert loaded.state == group.state
                assert loaded.describe() == group.describe()
        again.close()

    @invariant()
    def generations_rise(self) -> None:
        now: dict[str, int] = {}
        for group in self.g.coordinator.table.groups():
            assert isinstance(group, ClassicGroup)
            now[group.group_id] = group.generation
            assert group.generation >= self.generations.get(group.group_id, 0)
        self.generations = now
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] in now}  # others were deleted

    @invariant()
    def states_fit_their_members(self) -> None:
        for group in self.g.coordinator.table.groups():
            assert isinstance(group, ClassicGroup)
            members = group.members.values()
            instances = [each.instance_id for each in members if each.instance_id is not None]
            assert len(instances) == len(set(instances))
            assert group.joining_count == sum(each.joining is not None for each in members)
            assert group.leader in group.members or not members
            if group.state == "Empty":
                assert not members
            if group.state == "Stable":
                assert not any(each.syncing or each.joining for each in members)
            if group.state == "PreparingRebalance":
                assert not any(each.syncing for each in members)


TestGroups = GroupsMachine.TestCase
TestGroups.settings = settings(max_examples=examples(deep=300, most=20), stateful_step_count=40)
