"""IncrementalAlterConfigs and AlterConfigs: all changes of a resource are made, or none and the response has an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, NODE, World
from tests.support.failing_files import FailingFiles

Request = messages.IncrementalAlterConfigs.Request
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Op = tuple[str, int, str | None]


def resource(kind: int, name: str, *ops: Op) -> messages.IncrementalAlterConfigs.Request.Resource:
    configs = [Request.Config(name=key, config_operation=op, value=value) for key, op, value in ops]
    return Request.Resource(resource_type=kind, resource_name=name, configs=configs)


def alter_all(
    world: World, *resources: Any, validate_only: bool = False, version: int | None = None
) -> list[ErrorCode]:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = world.send(api, version, resources=list(resources), validate_only=validate_only)
    asked = [(each.resource_type, each.resource_name) for each in resources]
    assert [(each.resource_type, each.resource_name) for each in response.responses] == asked
    assert all(each.error_message for each in response.responses if each.error_code), "an error without a message"
    return [CODES[each.error_code] for each in response.responses]


def alter(world: World, kind: int, name: str, *ops: Op, validate_only: bool = False) -> ErrorCode:
    (code,) = alter_all(world, resource(kind, name, *ops), validate_only=validate_only)
    return code


def replace(world: World, kind: int, name: str, version: int = 2, **values: str | None) -> ErrorCode:
    """Send AlterConfigs for one resource. In the names of `values` an underscore stands for a dot."""
    Legacy = messages.AlterConfigs.Request
    configs = [Legacy.Config(name=key.replace("_", "."), value=value) for key, value in values.items()]
    asked = [Legacy.Resource(resource_type=kind, resource_name=name, configs=configs)]
    (result,) = world.send(ApiKey.ALTER_CONFIGS, version, resources=asked).responses
    return CODES[result.error_code]


def own(world: World, name: str = "a") -> dict[str, Any]:
    """The values that are set on the topic itself, without defaults."""
    info = world.topics.get(name)
    assert info is not None
    return dict(info.config)


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_values_of_a_topic_are_set_and_deleted(world: World, version: int) -> None:
    world.topics.create("a", 1, {"retention.ms": 5})
    ops: list[Op] = [("retention.bytes", SET, " 7 "), ("retention.ms", DELETE, None)]
    assert alter_all(world, resource(TOPIC, "a", *ops), version=version) == [ErrorCode.NONE]
    assert own(world) == {"retention.bytes": 7}
    log = world.topics.log("a", 0)
    assert log is not None and log.config.retention_bytes == 7 and log.config.retention_ms == 604_800_000


def test_lists_are_appended_to_and_subtracted_from(world: World) -> None:
    world.topics.create("a", 1)
    assert alter(world, TOPIC, "a", ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert own(world) == {"cleanup.policy": "delete,compact"}, "APPEND begins with the default"
    assert alter(world, TOPIC, "a", ("cleanup.policy", APPEND, "compact,delete")) is ErrorCode.NONE
    assert own(world) == {"cleanup.policy": "delete,compact"}
    assert alter(world, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete,keep")) is ErrorCode.NONE
    assert own(world) == {"cleanup.policy": "compact"}
    key = "leader.replication.throttled.replicas"
    assert alter(world, TOPIC, "a", (key, SUBTRACT, "0:1"), ("retention.ms", SET, "5")) is ErrorCode.NONE
    assert alter(world, TOPIC, "a", (key, APPEND, "0:1")) is ErrorCode.NONE
    assert own(world)[key] == "0:1"


@pytest.mark.parametrize(
    ("ops", "code"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, "1000")], ErrorCode.INVALID_CONFIG),
        ([("retention_bytes", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("log.retention.ms", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", SET, "keep")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "keep")], ErrorCode.INVALID_CONFIG),
        ([("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_one_bad_value_leaves_the_topic_as_it_was(
    world: World, ops: list[Op], code: ErrorCode, validate_only: bool
) -> None:
    world.topics.create("a", 1, {"retention.bytes": 5})
    good: Op = ("retention.bytes", SET, "6")
    assert alter(world, TOPIC, "a", good, *ops, validate_only=validate_only) is code
    assert own(world) == {"retention.bytes": 5}


def test_validate_only_changes_nothing(world: World) -> None:
    world.topics.create("a", 1)
    assert alter(world, TOPIC, "a", ("retention.ms", SET, "1"), validate_only=True) is ErrorCode.NONE
    assert own(world) == {}


def test_deleting_a_value_that_is_not_set_is_not_an_error(world: World) -> None:
    world.topics.create("a", 1)
    assert alter(world, TOPIC, "a", ("retention.ms", DELETE, None), ("gone.key", DELETE, None)) is ErrorCode.NONE
    assert own(world) == {}


def test_unknown_topics_and_invalid_names_are_refused(world: World) -> None:
    op: Op = ("retention.ms", SET, "1")
    assert alter(world, TOPIC, "x", op) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(world, TOPIC, "", op) is ErrorCode.INVALID_REQUEST
    assert alter(world, TOPIC, "a b", op) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_internal_topic_stays_compacted(world: World) -> None:
    world.topics.ensure_internal("__consumer_offsets")
    name = "__consumer_offsets"
    assert alter(world, TOPIC, name, ("cleanup.policy", SET, "delete")) is ErrorCode.INVALID_CONFIG
    assert alter(world, TOPIC, name, ("cleanup.policy", DELETE, None)) is ErrorCode.INVALID_CONFIG
    assert alter(world, TOPIC, name, ("segment.bytes", SET, str(1 << 20))) is ErrorCode.NONE
    assert world.logs.topic_config(name).compacts


def test_the_states_of_share_groups_are_neither_compacted_nor_deleted(world: World) -> None:
    """Compaction would keep the last of several updates only."""
    name = "__share_group_state"
    world.topics.ensure_internal(name)
    before = world.topics.get(name)
    for bad in (
        ("cleanup.policy", SET, "compact"),
        ("cleanup.policy", APPEND, "compact"),
        ("retention.ms", SET, "1000"),
        ("retention.ms", DELETE, None),
        ("retention.bytes", SET, "1000"),
    ):
        assert alter(world, TOPIC, name, bad) is ErrorCode.INVALID_CONFIG, bad
    assert world.topics.get(name) == before
    assert alter(world, TOPIC, name, ("segment.bytes", SET, str(1 << 20))) is ErrorCode.NONE


def test_one_failing_resource_does_not_stop_the_others(world: World) -> None:
    world.topics.create("a", 1)
    op: Op = ("retention.ms", SET, "1")
    assert alter_all(world, resource(TOPIC, "x", op), resource(TOPIC, "a", op)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]


def test_a_resource_that_is_named_twice_is_refused_each_time(world: World) -> None:
    world.topics.create("a", 1)
    op: Op = ("retention.ms", SET, "1")
    assert alter_all(world, resource(TOPIC, "a", op), resource(TOPIC, "a", op)) == [ErrorCode.INVALID_REQUEST] * 2
    assert own(world) == {}


@pytest.mark.parametrize("kind", [0, 1, 3, METRICS, 127, -1])
def test_other_types_of_resources_are_refused(world: World, kind: int) -> None:
    assert alter(world, kind, "a", ("interval.ms", SET, "1")) is ErrorCode.INVALID_REQUEST


def test_altering_configs_needs_the_operation_alter_configs(world: World) -> None:
    world.topics.create("a", 1)
    world.allow()
    asked = [resource(TOPIC, "a"), resource(TOPIC, "x"), resource(BROKER, ""), resource(LOGGER, str(NODE))]
    topic, cluster = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert alter_all(world, *asked) == [topic, topic, cluster, cluster]
    world.allow(("ALTER_CONFIGS", "TOPIC", "a"))
    assert alter_all(world, *asked) == [ErrorCode.NONE, topic, cluster, cluster]
    world.allow(("ALTER_CONFIGS", "CLUSTER", "kafka-cluster"))
    assert alter_all(world, *asked) == [topic, topic, ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_values_of_a_topic(world: World, version: int) -> None:
    world.topics.create("a", 1, {"retention.ms": 5, "retention.bytes": 6})
    assert replace(world, TOPIC, "a", version, retention_bytes="7", flush_ms="8") is ErrorCode.NONE
    assert own(world) == {"retention.bytes": 7, "flush.ms": 8}
    assert replace(world, TOPIC, "a", version, retention_bytes="x") is ErrorCode.INVALID_CONFIG
    assert replace(world, TOPIC, "a", version, retention_bytes=None) is ErrorCode.INVALID_REQUEST
    assert replace(world, TOPIC, "x", version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(world, LOGGER, str(NODE), version, root="INFO") is ErrorCode.INVALID_REQUEST
    assert own(world) == {"retention.bytes": 7, "flush.ms": 8}
    assert replace(world, TOPIC, "a", version) is ErrorCode.NONE
    assert own(world) == {}


def test_a_value_becomes_no_longer_than_a_response_can_have_it(world: World) -> None:
    world.topics.create("a", 1)
    key = "leader.replication.throttled.replicas"
    most = [f"{number}:1" for number in range(3_000)]
    for begin, code in ((0, ErrorCode.NONE), (3_000, ErrorCode.INVALID_CONFIG)):
        given = ",".join(f"{number}:1" for number in range(begin, begin + 3_000))
        assert alter(world, TOPIC, "a", (key, APPEND, given)) is code
    assert own(world) == {key: ",".join(most)}
    asked = [messages.DescribeConfigs.Request.Resource(resource_type=TOPIC, resource_name="a")]
    (result,) = world.send(ApiKey.DESCRIBE_CONFIGS, resources=asked).results
    assert result.error_code == 0 and key in [each.name for each in result.configs]


# ---- broker ----------------------------------------------------------------------------------------------------------


def test_a_broker_s_values_apply_to_its_logs_and_survive_a_restart(tmp_path: Path) -> None:
    with World(tmp_path, config={"log.retention.ms": 50}) as world:
        world.topics.create("a", 1)
        assert alter(world, BROKER, "", ("log.retention.ms", SET, "70")) is ErrorCode.NONE
        assert alter(world, BROKER, str(NODE), ("log.cleaner.threads", SET, "2")) is ErrorCode.NONE
        assert alter(world, BROKER, str(NODE), ("log.cleaner.threads", SET, "4")) is ErrorCode.NONE
        assert world.logs.topic_config("a").retention_ms == 70
    with World(tmp_path, config={"log.retention.ms": 50}) as world:
        assert world.logs.topic_config("a").retention_ms == 70
        assert world.logs.config.log_cleaner_threads == 4, "set in two steps, as one request may at most double it"
        assert alter(world, BROKER, str(NODE), ("log.retention.ms", SET, "90")) is ErrorCode.NONE
        assert world.logs.topic_config("a").retention_ms == 90, "it overrides the default of all brokers"
        assert alter(world, BROKER, "", ("log.retention.ms", DELETE, None)) is ErrorCode.NONE
        assert world.logs.topic_config("a").retention_ms == 90
        assert alter(world, BROKER, str(NODE), ("log.retention.ms", DELETE, None)) is ErrorCode.NONE
        assert world.logs.topic_config("a").retention_ms == 50
    with World(tmp_path) as world:
        assert world.logs.topic_config("a").retention_ms == 604_800_000


@pytest.mark.parametrize(
    ("name", "op", "code"),
    [
        (str(NODE), ("log.cleaner.threads", SET, "9"), ErrorCode.INVALID_REQUEST),
        (str(NODE), ("log.cleaner.threads", SET, "many"), ErrorCode.INVALID_REQUEST),
        (str(NODE), ("num.partitions", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("", ("log.retention.hours", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("", ("max.connections", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("", ("no.such.key", SET, "3"), ErrorCode.INVALID_CONFIG),
        ("", ("log.retention.ms", APPEND, "3"), ErrorCode.INVALID_CONFIG),
        ("", ("log.cleaner.dedupe.buffer.size", SET, "1"), ErrorCode.INVALID_REQUEST),
        ("2", ("log.retention.ms", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("one", ("log.retention.ms", SET, "3"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_a_broker_cannot_make_is_refused(world: World, name: str, op: Op, code: ErrorCode) -> None:
    world.logs.start()
    before = dict(world.logs.config)
    assert alter(world, BROKER, name, ("log.segment.bytes", SET, "2000000"), op) is code
    assert dict(world.logs.config) == before
    assert world.admin.dynamic.broker == world.admin.dynamic.default == {}


def test_validate_only_of_a_broker_changes_nothing(world: World) -> None:
    assert alter(world, BROKER, "", ("log.retention.ms", SET, "7"), validate_only=True) is ErrorCode.NONE
    assert alter(world, BROKER, "", ("log.retention.ms", SET, "x"), validate_only=True) is ErrorCode.INVALID_REQUEST
    assert world.admin.dynamic.default == {}
    assert not (Path(world.logs.path) / "klog-broker.json").exists()


def test_lists_of_a_broker_are_appended_to(world: World) -> None:
    assert alter(world, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert world.logs.config.topic_config({})["cleanup.policy"] == ("delete", "compact")


def test_alter_configs_replaces_all_values_of_a_broker(world: World) -> None:
    assert replace(world, BROKER, "", log_retention_ms="7", log_retention_bytes="8") is ErrorCode.NONE
    assert replace(world, BROKER, "", log_retention_bytes="9") is ErrorCode.NONE
    assert world.admin.dynamic.default == {"log.retention.bytes": "9"}
    assert world.logs.config.topic_config({})["retention.ms"] == 604_800_000


def test_a_failed_write_undoes_the_change(tmp_path: Path) -> None:
    files = FailingFiles()
    with World(tmp_path, files=files) as world:
        assert alter(world, BROKER, "", ("log.retention.ms", SET, "7")) is ErrorCode.NONE
        files.under = [str(tmp_path)]
        assert alter(world, BROKER, "", ("log.retention.ms", SET, "8")) is ErrorCode.KAFKA_STORAGE_ERROR
        files.under = []
        assert world.admin.dynamic.default == {"log.retention.ms": "7"}
        assert world.logs.config.topic_config({})["retention.ms"] == 7


def test_callbacks_get_the_new_configuration(world: World) -> None:
    seen: list[Any] = []
    world.admin.dynamic.on_change(lambda config: seen.append(config.topic_config({}).retention_ms))
    alter(world, BROKER, "", ("log.retention.ms", SET, "7"))
    alter(world, BROKER, "", ("log.retention.ms", SET, "x"))
    assert seen == [7]


@pytest.mark.parametrize("text", [b"", b"{", b'{"version": 1}', b'{"version": 1, "broker": 5, "default": {}}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "klog-broker.json").write_bytes(text)
    with pytest.raises(CorruptCheckpoint, match=r"klog-broker\.json"), World(tmp_path):
        pass


def test_a_stored_key_that_is_no_longer_known_is_ignored(tmp_path: Path) -> None:
    document = {"version": 1, "broker": {"gone.key": "1", "log.retention.ms": "7"}, "default": {}}
    (tmp_path / "klog-broker.json").write_bytes(versioned.encode(document))
    with World(tmp_path) as world:
        assert world.logs.config.topic_config({}).retention_ms == 7


# ---- loggers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("klog.broker")
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_levels_of_loggers_are_set_and_deleted(world: World, broker_logger: logging.Logger) -> None:
    for word, level in [("DEBUG", 10), ("TRACE", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)]:
        assert alter(world, LOGGER, str(NODE), ("klog.broker", SET, word)) is ErrorCode.NONE
        assert broker_logger.level == level
    assert alter(world, LOGGER, str(NODE), ("klog.broker", DELETE, None)) is ErrorCode.NONE
    assert broker_logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "op", "code"),
    [
        (str(NODE), ("klog.broker", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (str(NODE), ("klog.nothing", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (str(NODE), ("klog.broker", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (str(NODE), ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("", ("klog.broker", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("2", ("klog.broker", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_levels_change_no_logger(
    world: World, broker_logger: logging.Logger, name: str, op: Op, code: ErrorCode
) -> None:
    broker_logger.setLevel(45)
    ops = [op] if op[0] == "klog.broker" else [("klog.broker", SET, "DEBUG"), op]
    assert alter(world, LOGGER, name, *ops) is code
    assert alter(world, LOGGER, str(NODE), ("klog.broker", SET, "DEBUG"), validate_only=True) is ErrorCode.NONE
    assert broker_logger.level == 45
