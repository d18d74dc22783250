"""Kafka reads the groups and offsets that klog's coordinator has stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.harness import TOPIC, groups
from tests.interop.kafka import Kafka

pytestmark = [pytest.mark.java, pytest.mark.deep]
_KEYED = re.compile(r" key: (\{.*\}) payload: (.*)$", re.MULTILINE)


def dumped(kafka: Kafka, files: list[Path]) -> list[tuple[Any, Any]]:
    """Key and value of each record, by DumpLogSegments with Kafka's decoder of these records; None: a tombstone."""
    out, _ = kafka.dump(files, "--offsets-decoder")
    found = []
    for key, value in _KEYED.findall(out):
        found.append((json.loads(key), json.loads(value) if value.startswith("{") else None))
    return found


def test_what_klog_has_stored(kafka: Kafka, tmp_path: Path) -> None:
    with groups(tmp_path) as g:
        leader, follower = g.stable("g", 2)
        static = g.join("static", instance="i").response
        g.sync("static", static, {static.member_id: b"\x00\xff"}, instance="i")
        g.commit("g", {("t", 0): 5, ("t", 1): 2**40}, member=leader.member_id, generation=leader.generation_id)
        g.commit("old", {("t", 2): 7}, version=4, retention_time_ms=1000)
        g.txn_commit("txn", {("t", 0): 9})
        g.end("txn", True)
        g.coordinator.partitions_deleted([("t", 1)])
        g.leave("static", static.member_id, instance="i")
        now = g.clock.wall_ms()
        expected = [(record.key, record.value) for record in g.records() if record is not None]
        files = [Path(segment.path) for log in g.manager.logs() if log.topic == TOPIC for segment in log.segments]
    found = dumped(kafka, files)
    assert len(found) == len(expected)
    assert [key["data"] for key, _ in found] == [key for key, _ in expected]
    by_key = {(key["type"], *key["data"].values()): value and value["data"] for key, value in found}
    assert by_key["1", "g", "t", 0] == {"offset": 5, "leaderEpoch": -1, "metadata": "m", "commitTimestamp": now}
    assert by_key["1", "g", "t", 1] is None
    assert by_key["1", "txn", "t", 0]["offset"] == 9
    assert by_key["1", "old", "t", 2]["expireTimestamp"] == now + 1000
    group = by_key["2", "g"]
    assert (group["generation"], group["leader"], group["protocol"]) == (2, leader.member_id, "range")
    assert [member["memberId"] for member in group["members"]] == [leader.member_id, follower.member_id]
    assert by_key["2", "static"] == {
        "protocolType": "consumer",
        "generation": 2,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": now,
        "members": [],
    }
