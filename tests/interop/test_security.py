"""Kafka's StandardAuthorizer and quotas make the same decisions as klog.security."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from klog.clock import ManualClock
from klog.security import ClientQuotas, SecurityConfig
from klog.security.acl_index import AclIndex
from klog.security.acl_types import OPERATIONS, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from klog.security.quota_entities import USER
from tests.interop.kafka import KafkaClasses

pytestmark = [pytest.mark.java, pytest.mark.deep]

SETS = 400
PRINCIPALS = ("User:a", "User:b", "Group:a")
HOSTS = ("10.0.0.1", "10.0.0.2")
TYPES = ("TOPIC", "GROUP", "TRANSACTIONAL_ID")


def names(source: random.Random) -> str:
    """Short and of few letters, so that many are prefixes of others."""
    return "".join(source.choices("ab", k=source.randint(1, 4)))


def random_acls(source: random.Random) -> list[Acl]:
    operations = [each for each in Operation if each > Operation.ANY]
    return list(
        dict.fromkeys(
            Acl(
                ResourceType[source.choice(TYPES)],
                source.choice([PatternType.LITERAL, PatternType.PREFIXED]),
                source.choice([names(source), names(source), "*"]),
                source.choice([*PRINCIPALS, "User:*"]),
                source.choice([*HOSTS, "*"]),
                source.choice([Operation.ALL, Operation.READ, Operation.WRITE, *operations]),
                source.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
            )
            for _ in range(source.randint(0, 15))
        )
    )


def as_row(each: Acl | AclFilter) -> list[str | None]:
    return [
        each.resource_type.name,
        each.pattern_type.name,
        each.name,
        each.principal,
        each.host,
        each.operation.name,
        each.permission.name,
    ]


@pytest.mark.timeout(600)
def test_the_authorizer_decides_as_kafkas(kafka_classes: KafkaClasses) -> None:
    source = random.Random(20_240_801)
    cases: list[dict[str, Any]] = []
    mine: list[dict[str, Any]] = []
    for _ in range(SETS):
        acls, default = random_acls(source), source.random() < 0.3
        supers = frozenset(source.sample(PRINCIPALS, source.choice([0, 0, 1])))
        index = AclIndex(acls, supers, default)
        operations = [each.name for each in Operation if each > Operation.ALL]
        some = [
            (source.choice(PRINCIPALS), source.choice(HOSTS), source.choice(operations), source.choice(TYPES))
            for _ in range(20)
        ]
        questions = [(*each, names(source)) for each in some]
        filters = [
            AclFilter(
                source.choice([ResourceType.ANY, ResourceType.TOPIC]),
                source.choice([each for each in PatternType if each > PatternType.UNKNOWN]),
                source.choice([None, names(source), "*"]),
                source.choice([None, *PRINCIPALS]),
                source.choice([None, *HOSTS]),
                source.choice([Operation.ANY, Operation.READ]),
                source.choice([Permission.ANY, Permission.ALLOW]),
            )
            for _ in range(5)
        ]
        cases.append(
            {
                "acls": list(map(as_row, acls)),
                "super_users": ";".join(supers),
                "default": default,
                "questions": questions,
                "some": some,
                "filters": list(map(as_row, filters)),
            }
        )
        mine.append(
            {
                "questions": [index.allows(*each) for each in questions],
                "some": [index.allows_some(*each) for each in some],
                "filters": [[number for number, acl in enumerate(acls) if wanted.matches(acl)] for wanted in filters],
            }
        )
    answer = kafka_classes.ask("authorize", Path(), cases=cases)
    for case, own, kafkas in zip(cases, mine, answer["answers"], strict=True):
        kafkas["filters"] = [sorted(found) for found in kafkas["filters"]]
        assert own == kafkas, case
    exist = {kind: sorted(numbers) for kind, numbers in answer["operations"].items()}
    assert exist == {kind.name: [int(each) for each in sorted(found)] for kind, found in OPERATIONS.items()}
    decisions = [each for own in mine for each in (*own["questions"], *own["some"])]
    assert 0.1 < sum(decisions) / len(decisions) < 0.9  # else they would show little


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["rate", "bucket"])
def test_clients_wait_as_long_as_kafkas(kafka_classes: KafkaClasses, kind: str, tmp_path: Path) -> None:
    source = random.Random(20_240_802)
    cases: list[dict[str, Any]] = []
    mine = []
    for number in range(200):
        samples, seconds, bound = source.choice([2, 3, 11]), source.choice([1, 2]), source.choice([1, 7, 500])
        clock = ManualClock()
        config = SecurityConfig.of(
            {
                "quota.window.num": samples,
                "quota.window.size.seconds": seconds,
                "controller.quota.window.num": samples,
                "controller.quota.window.size.seconds": seconds,
            }
        )
        quotas = ClientQuotas(str(tmp_path / str(number)), config, clock)
        (tmp_path / str(number)).mkdir()
        quotas.change({((USER, "u"),): {"producer_byte_rate": bound, "controller_mutation_rate": bound}})
        now, events, waits = 0, [], []
        for _ in range(60):
            step = source.choice([0, 1, source.randint(1, 999), 1000, source.randint(1000, 30_000)])
            now, amount = now + step, source.randint(0, 4 * bound)
            clock.advance(step)
            events.append([now, amount])
            waits.append(
                quotas.throttle_ms(
                    "u", "c", "producer_byte_rate" if kind == "rate" else "controller_mutation_rate", amount
                )
            )
        cases.append({"kind": kind, "bound": bound, "samples": samples, "seconds": seconds, "events": events})
        mine.append(waits)
    kafkas = kafka_classes.ask("throttle", Path(), cases=cases)["answers"]
    for case, own, other in zip(cases, mine, kafkas, strict=True):
        assert all(abs(one - two) <= 1 for one, two in zip(own, other, strict=True)), (case, own, other)  # rounding
    assert 0.1 < sum(wait > 0 for waits in mine for wait in waits) / (200 * 60) < 0.9
