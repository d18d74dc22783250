"""The configurations that consumer groups have of their own: set, shown, listed, kept, and given to the coordinator."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.protocol import ErrorCode
from tests.broker.admin.test_alter_configs import DELETE, GROUP, SET, Op, alter, alter_all, replace, resource
from tests.broker.admin.test_describe_configs import code, describe, listed, synonyms
from tests.broker.admin.world import World
from tests.support.failing_files import FailingFiles

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
GROUP_SOURCE, DEFAULT = 8, 5


class Given(dict[str, Any]):
    """What the coordinator was given: {group: (session, heartbeat)}."""

    def __call__(self, group_id: str, config: ConsumerGroupConfig | None) -> None:
        self[group_id] = config and (config.session_timeout_ms, config.heartbeat_interval_ms)


def test_a_value_is_set_shown_and_given_to_the_coordinator(tmp_path: Path) -> None:
    given = Given()
    with World(tmp_path, groups=ConsumerGroupConfig(session_timeout_ms=40_000), configure=given) as world:
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
        assert given == {"g": None} and listed(world, GROUP) == (ErrorCode.NONE, [])


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
def test_what_is_refused_changes_nothing(tmp_path: Path, name: str, op: Op, expected: ErrorCode) -> None:
    given = Given()
    with World(tmp_path, groups=ConsumerGroupConfig(max_session_timeout_ms=60_000), configure=given) as world:
        assert alter(world, GROUP, name, op) is expected
        assert given == {} and listed(world, GROUP) == (ErrorCode.NONE, [])
        assert code(world, GROUP, "") is ErrorCode.INVALID_REQUEST


def test_they_are_there_after_a_restart_as_far_as_the_bounds_allow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with World(tmp_path) as world:
        assert alter(world, GROUP, "slow", (SESSION, SET, "90000")) is ErrorCode.NONE
        assert alter(world, GROUP, "quick", (SESSION, SET, "6000")) is ErrorCode.NONE
    given = Given()
    with (
        caplog.at_level(logging.WARNING, "klog.broker"),
        World(tmp_path, groups=ConsumerGroupConfig(max_session_timeout_ms=60_000), configure=given) as world,
    ):
        assert given == {"quick": (6000, 5000)}
        assert "event=config_left_out group='slow'" in caplog.text
        assert listed(world, GROUP) == (ErrorCode.NONE, [(GROUP, "quick"), (GROUP, "slow")])


def test_a_change_that_cannot_be_written_has_no_effect(tmp_path: Path) -> None:
    given = Given()
    files = FailingFiles()
    with World(tmp_path, configure=given, files=files) as world:
        files.under = [str(tmp_path)]
        assert alter(world, GROUP, "g", (SESSION, SET, "50000")) is ErrorCode.KAFKA_STORAGE_ERROR
        files.under = []
        assert given == {} and listed(world, GROUP) == (ErrorCode.NONE, [])


def test_rights_for_the_group_are_needed(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.allow(("ALTER_CONFIGS", "GROUP", "g"), ("DESCRIBE_CONFIGS", "GROUP", "g"))
        asked = [resource(GROUP, name, (SESSION, SET, "50000")) for name in "gh"]
        assert alter_all(world, *asked) == [ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert describe(world, GROUP, "g")[SESSION].value == "50000"
        assert code(world, GROUP, "h") is ErrorCode.GROUP_AUTHORIZATION_FAILED
