"""Kafka's dump tool reads every kind of control record that klog writes, with the same fields."""

from __future__ import annotations

import json
import re

import pytest

from klog.record import encode
from klog.record.control import marker
from klog.record.kraft import LeaderChange
from tests.interop.kafka import Kafka, complaints
from tests.record.test_kraft import EXAMPLES, VOTERS

pytestmark = [pytest.mark.java, pytest.mark.deep]

T = 1_700_000_000_000
LABELS = ("LeaderChange", "SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters")


@pytest.fixture(scope="module")
def lines(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("control") / "t-0"
    directory.mkdir()
    examples = [*EXAMPLES, LeaderChange(2**31 - 1, tuple(range(300)), ())]
    batches = [encode([(*one.record(), T)], is_control=True, base_offset=n) for n, one in enumerate(examples)]
    for outcome in ("abort", "commit"):
        ends = {"is_control": True, "is_transactional": True, "producer_id": 9, "producer_epoch": 1}
        batches.append(encode([(*marker(outcome, 12), T)], base_offset=len(batches), **ends))
    log = directory / "00000000000000000000.log"
    log.write_bytes(b"".join(batches))
    out, err = kafka.dump([log], "--deep-iteration")
    assert complaints(kafka.version, err) == []
    return [line for line in out.splitlines() if line.startswith("|")]


def fields_from_kafka(line: str) -> tuple[str, dict[str, object]]:
    found = re.search(rf"({'|'.join(LABELS)}):? (\{{.*\}})$", line)
    assert found is not None, line
    return found[1], json.loads(found[2])


def test_kafka_reads_every_field(lines: list[str]) -> None:
    leader, header, footer, version, voters, many = map(fields_from_kafka, lines[:6])
    ids = [{"voterId": 1}, {"voterId": 2}]
    assert leader == ("LeaderChange", {"version": 0, "leaderId": 1, "voters": ids, "grantingVoters": ids[:1]})
    assert header == ("SnapshotHeader", {"version": 0, "lastContainedLogTimestamp": T})
    assert footer == ("SnapshotFooter", {"version": 0})
    assert version == ("KRaftVersion", {"version": 0, "kRaftVersion": 1})
    assert voters[0] == "KRaftVoters"
    listed = voters[1]["voters"]
    assert isinstance(listed, list)
    assert [voter["voterId"] for voter in listed] == [voter.voter_id for voter in VOTERS.voters]
    assert [
        [(endpoint["name"], endpoint["host"], endpoint["port"]) for endpoint in voter["endpoints"]] for voter in listed
    ] == [[(e.name, e.host, e.port) for e in voter.endpoints] for voter in VOTERS.voters]
    assert [tuple(voter["kRaftVersionFeature"].values()) for voter in listed] == [(0, 1), (1, 1)]
    assert isinstance(many[1]["voters"], list)
    assert len(many[1]["voters"]) == 300


def test_kafka_reads_the_markers(lines: list[str]) -> None:
    assert [line.partition("endTxnMarker: ")[2] for line in lines[6:]] == [
        "ABORT coordinatorEpoch: 12",
        "COMMIT coordinatorEpoch: 12",
    ]
