"""The assignors of consumer groups, compared with Kafka's own: their assignments are as even, with no more moves; ranges
are the same."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from klog.coordinator.groups.assignors import ASSIGNORS, Members, MemberSpec, Sizes
from klog.coordinator.groups.consumer_member import Target
from klog.coordinator.groups.consumer_records import id_of, id_text
from tests.interop.kafka import Kafka

pytestmark = [pytest.mark.java, pytest.mark.deep]
GROUPS = 150
Case = tuple[str, bool, Members, Sizes]


def cases() -> Iterator[Case]:
    """Random groups, each one with no assignment yet, and after members and topics have changed."""
    random = Random(848)
    for number in range(GROUPS):
        same = number % 2 == 0
        assignor = "uniform" if number % 3 else "range"
        sizes = {uuid.UUID(int=random.getrandbits(128)): random.randint(1, 12) for _ in range(random.randint(1, 6))}
        shared = frozenset(random.sample(sorted(sizes), random.randint(1, len(sizes))))
        members = {
            f"m{number}": MemberSpec(
                shared if same else frozenset(random.sample(sorted(sizes), random.randint(1, len(sizes)))),
                {},
                random.choice([None, f"i{number}"]),
            )
            for number in range(random.randint(1, 9))
        }
        yield assignor, same, members, sizes
        result = ASSIGNORS[assignor](members, sizes)
        changed = {
            name: MemberSpec(member.topics, result[name], member.instance_id)
            for name, member in members.items()
            if random.random() < 0.8
        }
        for more in range(random.randint(1, 3)):
            changed[f"new{more}"] = MemberSpec(random.choice(list(members.values())).topics, {})
        grown = {topic_id: size + random.choice([0, 0, 3]) for topic_id, size in sizes.items()}
        yield assignor, same, changed, grown


def as_json(case: Case) -> str:
    assignor, same, members, sizes = case
    return json.dumps(
        {
            "assignor": assignor,
            "homogeneous": same,
            "sizes": {id_text(topic_id): size for topic_id, size in sizes.items()},
            "members": {
                name: {
                    "instance": member.instance_id,
                    "topics": [id_text(topic_id) for topic_id in sorted(member.topics)],
                    "target": {id_text(topic_id): sorted(some) for topic_id, some in member.target.items()},
                }
                for name, member in members.items()
            },
        }
    )


def pairs(target: Target) -> set[tuple[uuid.UUID, int]]:
    return {(topic_id, partition) for topic_id, some in target.items() for partition in some}


def moves(members: Members, result: dict[str, Target]) -> int:
    return sum(len(pairs(member.target) - pairs(result.get(name, {}))) for name, member in members.items())


def loads(members: Members, result: dict[str, Target]) -> list[int]:
    return sorted(len(pairs(result.get(name, {}))) for name in members)


def test_they_are_as_good_as_those_of_kafka(kafka: Kafka) -> None:
    groups = list(cases())
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", kafka.class_path, "Assignors"],
        input="".join(as_json(case) + "\n" for case in groups),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(groups)
    compared = {"range": 0, "same": 0, "different": 0}
    for (assignor, same, members, sizes), answer in zip(groups, answers, strict=True):
        ours = ASSIGNORS[assignor](members, sizes)
        theirs = {
            name: {id_of(topic): frozenset(some) for topic, some in target.items()} for name, target in answer.items()
        }
        everything = set().union(*map(pairs, theirs.values()))
        assert set().union(*map(pairs, ours.values())) == everything
        if assignor == "range":
            assert {name: pairs(target) for name, target in ours.items()} == {
                name: pairs(theirs.get(name, {})) for name in members
            }
            compared["range"] += 1
        elif same:
            assert loads(members, ours) == loads(members, theirs)
            assert moves(members, ours) <= moves(members, theirs)
            compared["same"] += 1
        else:
            assert max(loads(members, ours)) <= max(loads(members, theirs)) + 1
            assert sum(load**2 for load in loads(members, ours)) <= 1.05 * sum(
                load**2 for load in loads(members, theirs)
            )
            compared["different"] += 1
    assert min(compared.values()) > GROUPS // 5
