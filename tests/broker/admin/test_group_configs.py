"""Configurations of single groups are set, described, listed, stored, and passed to the coordinator."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from klog.broker.admin.group_configs import OfGroups
from klog.coordinator.groups.consumer_config import GROUP_KEYS, ConsumerGroupConfig
from klog.coordinator.share import ShareGroupConfig
from klog.coordinator.share import config as share
from klog.protocol import ErrorCode
from tests.broker.admin.test_alter_configs import DELETE, GROUP, SET, Op, alter, alter_all, replace, resource
from tests.broker.admin.test_describe_configs import code, describe, listed, synonyms
from tests.broker.admin.world import World
from tests.support.failing_files import FailingFiles

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
GROUP_SOURCE, DEFAULT = 8, 5


class Given(dict[str, Any]):
    """The configurations that the coordinator was given: {group: (session timeout, heartbeat interval)}, in ms."""

    def __call__(self, group_id: str, config: ConsumerGroupConfig | None) -> None:
        if config is None:
            self.pop(group_id, None)
        else:
            self[group_id] = config.session_timeout_ms, config.heartbeat_interval_ms


def consumers(given: Given, **limits: int) -> tuple[OfGroups, ...]:
    """The configurations of consumer groups alone."""
    return (OfGroups(ConsumerGroupConfig(**limits), GROUP_KEYS, given),)


def test_a_value_is_set_shown_and_given_to_the_coordinator(tmp_path: Path) -> None:
    given = Given()
    with World(tmp_path, groups=consumers(given, session_timeout_ms=40_000)) as world:
        before = describe(world, GROUP, "g", include_synonyms=True)
        assert {name: (each.value, each.config_source, each.config_type) for name, each in before.items()} == {
            SESSION: ("40000", DEFAULT, 3),
            HEARTBEAT: ("5000", DEFAULT, 3),
        }
        assert alter(world, GROUP, "g", (SESSION, SET, "50000"), validate_only=True) is ErrorCode.NONE
        assert given == {} and listed(world, GROUP) == (ErrorCode.NONE, [])
        assert alter(world, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.NONE
        after = describe(world, GROUP, "g", include_synonyms=True)
        assert synonyms(after[SESSION]) == [(SESSION, "50000", GROUP_SOURCE)]
        assert after[HEARTBEAT] == before[HEARTBEAT]
        assert describe(world, GROUP, "h", include_synonyms=True) == before
        assert given == {"g": (50_000, 5000)} and listed(world, GROUP) == (ErrorCode.NONE, [(GROUP, "g")])
        assert replace(world, GROUP, "g", consumer_heartbeat_interval_ms="7000") is ErrorCode.NONE
        assert given == {"g": (40_000, 7000)}
        assert alter(world, GROUP, "g", (HEARTBEAT, DELETE, None), ("gone", DELETE, None)) is ErrorCode.NONE
        assert given == {} and listed(world, GROUP) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("name", "op", "expected"),
    [
        ("", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
        ("g", (SESSION, SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, "5000"), ErrorCode.INVALID_CONFIG),
        ("g", (HEARTBEAT, 2, "5000"), ErrorCode.INVALID_CONFIG),
        ("g", ("share.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_change_is_refused_and_has_no_effect(tmp_path: Path, name: str, op: Op, expected: ErrorCode) -> None:
    given = Given()
    with World(tmp_path, groups=consumers(given, max_session_timeout_ms=60_000)) as world:
        assert alter(world, GROUP, name, op) is expected
        assert given == {} and listed(world, GROUP) == (ErrorCode.NONE, [])
        assert code(world, GROUP, "") is ErrorCode.INVALID_REQUEST


def test_values_within_the_limits_are_restored_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with World(tmp_path, groups=consumers(Given())) as world:
        assert alter(world, GROUP, "slow", (SESSION, SET, "90000")) is ErrorCode.NONE
        assert alter(world, GROUP, "quick", (SESSION, SET, "6000")) is ErrorCode.NONE
    given = Given()
    with (
        caplog.at_level(logging.WARNING, "klog.broker"),
        World(tmp_path, groups=consumers(given, max_session_timeout_ms=60_000)) as world,
    ):
        assert given == {"quick": (6000, 5000)}
        assert "event=config_left_out group='slow'" in caplog.text
        assert listed(world, GROUP) == (ErrorCode.NONE, [(GROUP, "quick"), (GROUP, "slow")])


def test_a_change_that_cannot_be_written_has_no_effect(tmp_path: Path) -> None:
    given = Given()
    files = FailingFiles()
    with World(tmp_path, groups=consumers(given), files=files) as world:
        files.under = [str(tmp_path)]
        assert alter(world, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.KAFKA_STORAGE_ERROR
        files.under = []
        assert given == {} and listed(world, GROUP) == (ErrorCode.NONE, [])


def test_altering_and_describing_need_operations_on_the_group(tmp_path: Path) -> None:
    with World(tmp_path, groups=consumers(Given())) as world:
        world.allow(("ALTER_CONFIGS", "GROUP", "g"), ("DESCRIBE_CONFIGS", "GROUP", "g"))
        asked = [resource(GROUP, name, (SESSION, SET, "50000")) for name in "gh"]
        assert alter_all(world, *asked) == [ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert describe(world, GROUP, "g")[SESSION].value == "50000"
        assert code(world, GROUP, "h") is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_group_has_the_properties_of_consumer_groups_and_of_share_groups(tmp_path: Path) -> None:
    given: dict[str, ShareGroupConfig | None] = {}
    kinds = (
        *consumers(Given()),
        OfGroups(ShareGroupConfig(), share.GROUP_KEYS, given.__setitem__),
    )
    with World(tmp_path, groups=kinds) as world:
        found = {name: (each.value, each.config_type) for name, each in describe(world, GROUP, "g").items()}
        assert found == {
            HEARTBEAT: ("5000", 3),
            SESSION: ("45000", 3),
            "share.auto.offset.reset": ("latest", 2),
            "share.delivery.count.limit": ("5", 3),
            "share.heartbeat.interval.ms": ("5000", 3),
            "share.isolation.level": ("read_uncommitted", 2),
            "share.partition.max.record.locks": ("2000", 3),
            "share.record.lock.duration.ms": ("30000", 3),
            "share.renew.acknowledge.enable": ("true", 1),
            "share.session.timeout.ms": ("45000", 3),
        }
        ops = ("share.auto.offset.reset", SET, "earliest"), ("share.renew.acknowledge.enable", SET, "false")
        assert alter(world, GROUP, "g", *ops, (HEARTBEAT, SET, "7000")) is ErrorCode.NONE
        config = given["g"]
        assert config is not None
        assert (config.auto_offset_reset, config.renew_acknowledge_enable) == ("earliest", False)
        for name, value in (
            ("share.auto.offset.reset", "none"),
            ("share.isolation.level", "serializable"),
            ("share.delivery.count.limit", "0"),
            ("share.session.timeout.ms", "5000"),
            ("share.session.time", "5000"),
        ):
            assert alter(world, GROUP, "g", (name, SET, value)) is ErrorCode.INVALID_CONFIG
        assert given["g"] is config


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1S", 1000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.001S", 1),
        ("pt1m", 60_000),
        ("P", None),
        ("PT", None),
        ("-PT1S", None),
    ],
)
def test_durations_of_a_start_offset(text: str, ms: int | None) -> None:
    if ms is None:
        with pytest.raises(ValueError, match=r"share\.auto\.offset\.reset"):
            ShareGroupConfig(auto_offset_reset=f"by_duration:{text}")
    else:
        assert ShareGroupConfig(auto_offset_reset=f"by_duration:{text}").reset_duration_ms == ms
