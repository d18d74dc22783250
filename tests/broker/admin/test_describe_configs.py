"""DescribeConfigs: values with their sources, synonyms, types and documentation; ListConfigResources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker
from klog.broker.settings import BrokerSettings
from klog.config import BROKER_KEYS, TOPIC_KEYS
from klog.config.table import SYNONYMS
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, NODE, World
from tests.broker.test_costs import DirectClient

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
OWN, DYNAMIC, DYNAMIC_DEFAULT, STATIC, DEFAULT, LEVEL = range(1, 7)
Resource = messages.DescribeConfigs.Request.Resource
Resources = dict[tuple[int, str], ErrorCode]


def results(world: World, *asked: tuple[int, str], keys: list[str] | None = None, **fields: Any) -> list[Any]:
    version = fields.pop("version", None)
    resources = [Resource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name in asked]
    found: list[Any] = world.send(ApiKey.DESCRIBE_CONFIGS, version, resources=resources, **fields).results
    return found


def describe(world: World, kind: int, name: str, **fields: Any) -> dict[str, Any]:
    (result,) = results(world, (kind, name), **fields)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, kind, name)
    names = [config.name for config in result.configs]
    assert names == sorted(set(names))
    return {config.name: config for config in result.configs}


def code(world: World, kind: int, name: str) -> ErrorCode:
    (result,) = results(world, (kind, name))
    assert result.configs == [] and bool(result.error_message) == bool(result.error_code)
    return CODES[result.error_code]


def synonyms(config: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


@pytest.mark.parametrize("version", range(ApiKey.DESCRIBE_CONFIGS.low, ApiKey.DESCRIBE_CONFIGS.high + 1))
def test_a_fresh_topic_has_every_key_with_its_default(world: World, version: int) -> None:
    world.topics.create("a", 1)
    found = describe(world, TOPIC, "a", version=version)
    assert set(found) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert {config.config_source for config in found.values()} == {DEFAULT}
    assert not any(config.read_only or config.is_sensitive or config.synonyms for config in found.values())
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("604800000", "delete")
    assert (found["preallocate"].value, found["min.cleanable.dirty.ratio"].value) == ("false", "0.5")
    types = {name: found[name].config_type for name in ("retention.ms", "segment.bytes", "cleanup.policy")}
    assert types == (
        dict.fromkeys(types, 0) if version < 3 else {"retention.ms": 5, "segment.bytes": 3, "cleanup.policy": 7}
    )


def test_defaults_of_a_fresh_topic_are_those_of_the_first_synonym(world: World) -> None:
    world.topics.create("a", 1)
    found = describe(world, TOPIC, "a", include_synonyms=True)
    assert synonyms(found["segment.bytes"]) == [("log.segment.bytes", "1073741824", DEFAULT)]
    assert synonyms(found["retention.ms"]) == [], "log.retention.ms has no default, only log.retention.hours has"


def test_documentation_is_returned_only_on_request(world: World) -> None:
    world.topics.create("a", 1)
    assert {each.documentation for each in describe(world, TOPIC, "a").values()} == {None}
    shown = describe(world, TOPIC, "a", include_documentation=True)
    assert all(each.documentation == TOPIC_KEYS[name].doc for name, each in shown.items())


def test_only_the_requested_keys_are_returned(world: World) -> None:
    world.topics.create("a", 1)
    assert set(describe(world, TOPIC, "a", keys=["retention.ms", "no.such.key"])) == {"retention.ms"}
    assert len(describe(world, TOPIC, "a", keys=[])) > 30, "an empty list means all, as null does"


def test_the_source_of_highest_precedence_is_shown_and_all_are_synonyms(tmp_path: Path) -> None:
    with World(tmp_path, config={"log.retention.hours": 2, "log.retention.minutes": 180}) as world:
        world.topics.create("a", 1)

        def seen() -> tuple[str, int, list[tuple[str, str | None, int]]]:
            config = describe(world, TOPIC, "a", include_synonyms=True)["retention.ms"]
            return config.value, config.config_source, synonyms(config)

        rest: list[tuple[str, str | None, int]] = [
            ("log.retention.minutes", "180", STATIC),
            ("log.retention.hours", "2", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ]
        assert seen() == (str(180 * 60_000), STATIC, rest)
        world.admin.dynamic.alter(per_broker=False, changes={"log.retention.ms": "7"})
        rest = [("log.retention.ms", "7", DYNAMIC_DEFAULT), *rest]
        assert seen() == ("7", DYNAMIC_DEFAULT, rest)
        world.admin.dynamic.alter(per_broker=True, changes={"log.retention.ms": "8"})
        rest = [("log.retention.ms", "8", DYNAMIC), *rest]
        assert seen() == ("8", DYNAMIC, rest)
        world.topics.alter("a", {"retention.ms": 9})
        assert seen() == ("9", OWN, [("retention.ms", "9", OWN), *rest])


def test_the_limits_of_the_network_are_those_that_the_broker_uses(tmp_path: Path) -> None:
    """Not Kafka's defaults, which the table of klog.config has."""
    names = ["num.network.threads", "socket.request.max.bytes"]
    resource = Resource(resource_type=BROKER, resource_name="1", configuration_keys=names)
    for given, threads in (({}, "1"), ({"num.network.threads": 2}, "2")):
        with Broker(tmp_path, listeners=["127.0.0.1:0"], config=given) as broker:
            request = messages.DescribeConfigs.Request(resources=[resource])
            (result,) = DirectClient(broker).call(ApiKey.DESCRIBE_CONFIGS, 4, request).results
        assert {each.name: each.value for each in result.configs} == dict(
            zip(names, (threads, str(16 << 20)), strict=True)
        )


def test_each_of_several_brokers_has_its_own_id(tmp_path: Path) -> None:
    with World(tmp_path, brokers=(NODE, NODE + 1), given={"node.id": NODE}) as world:
        for node_id in (NODE, NODE + 1):
            found = describe(world, BROKER, str(node_id), include_synonyms=True)["node.id"]
            assert (found.value, synonyms(found)) == (str(node_id), [("node.id", str(node_id), STATIC)])


def test_a_value_that_equals_the_default_is_still_the_topic_s_own(world: World) -> None:
    world.topics.create("a", 1, {"retention.ms": 604_800_000, "internal.segment.bytes": 100})
    found = describe(world, TOPIC, "a")
    assert found["retention.ms"].config_source == OWN
    assert (found["internal.segment.bytes"].value, found["internal.segment.bytes"].config_source) == ("100", OWN)


def test_the_broker_s_values_with_their_sources(tmp_path: Path) -> None:
    given = {"log.cleaner.backoff.ms": " 15000 ", "auto.create.topics.enable": "true", "my.secret.thing": "x"}
    given["listeners"] = "PLAINTEXT://:9092"
    effective = {"max.things": 7}
    config = {"log.retention.ms": 5, "ssl.key.password": "geheim"}
    with World(tmp_path, config=config, given=given, effective=effective) as world:
        world.admin.dynamic.alter(per_broker=True, changes={"log.cleaner.threads": "2"})
        found = describe(world, BROKER, str(NODE), include_synonyms=True)
        own = {"listeners", "max.things", "my.secret.thing"} | BrokerSettings.names()
        assert {*BROKER_KEYS, *SYNONYMS, *own} == set(found)

        def seen(name: str) -> tuple[str | None, int, bool, bool]:
            each = found[name]
            return each.value, each.config_source, each.read_only, each.is_sensitive

        assert seen("log.cleaner.threads") == ("2", DYNAMIC, False, False)
        assert synonyms(found["log.cleaner.threads"]) == [
            ("log.cleaner.threads", "2", DYNAMIC),
            ("log.cleaner.threads", "1", DEFAULT),
        ]
        assert seen("log.retention.ms") == ("5", STATIC, False, False)
        assert seen("log.retention.hours") == ("168", DEFAULT, True, False)
        assert seen("log.retention.minutes") == (None, DEFAULT, True, False)
        assert seen("log.dirs") == (str(tmp_path), STATIC, True, False)
        assert seen("listeners") == ("PLAINTEXT://:9092", STATIC, True, False)
        assert seen("max.things") == ("7", DEFAULT, True, False)
        assert seen("log.cleaner.backoff.ms")[:2] == ("15000", STATIC)
        assert seen("log.cleaner.io.max.bytes.per.second") == ("1.7976931348623157E308", DEFAULT, False, False)
        assert seen("auto.create.topics.enable") == ("true", STATIC, True, False)
        assert seen("delete.topic.enable") == ("true", DEFAULT, True, False)
        assert seen("node.id") == (str(NODE), DEFAULT, True, False)
        assert seen("inter.broker.listener.name") == (None, DEFAULT, True, False)
        assert seen("max.connections") == ("2147483647", DEFAULT, True, False), "klog cannot change it at run time"
        assert seen("ssl.key.password") == (None, STATIC, True, True)
        assert seen("my.secret.thing") == (None, STATIC, True, True)
        text = str(found)
        assert "geheim" not in text


def test_the_defaults_of_all_brokers_are_only_those_that_clients_have_set(world: World) -> None:
    assert describe(world, BROKER, "") == {}
    world.admin.dynamic.alter(per_broker=False, changes={"log.retention.ms": "7"})
    world.admin.dynamic.alter(per_broker=True, changes={"log.cleaner.threads": "2"})
    ((name, config),) = describe(world, BROKER, "").items()
    assert (name, config.value, config.config_source, config.config_type) == (
        "log.retention.ms",
        "7",
        DYNAMIC_DEFAULT,
        5,
    )


def test_levels_of_loggers(world: World) -> None:
    found = describe(world, LOGGER, str(NODE))
    assert {"root", "klog", "klog.broker", "klog.manager"} <= set(found)
    assert {each.config_source for each in found.values()} == {LEVEL}
    assert {each.value for each in found.values()} <= {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}


def test_unknown_resources_are_refused(world: World) -> None:
    assert code(world, TOPIC, "x") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(world, TOPIC, "a b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    for kind, name in [
        (BROKER, "2"),
        (BROKER, "one"),
        (LOGGER, ""),
        (LOGGER, "2"),
        (METRICS, "m"),
        (0, ""),
    ]:
        assert code(world, kind, name) is ErrorCode.INVALID_REQUEST


def test_without_describe_configs_the_error_is_the_same_whether_the_topic_exists_or_not(world: World) -> None:
    world.topics.create("a", 1)
    world.allow()
    asked = [(TOPIC, "a"), (TOPIC, "x"), (BROKER, ""), (BROKER, "1"), (LOGGER, "1")]
    found = [CODES[each.error_code] for each in results(world, *asked)]
    assert found == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2 + [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
    world.allow(("DESCRIBE_CONFIGS", "TOPIC", "a"))
    assert describe(world, TOPIC, "a")
    world.allow(("DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster"))
    assert describe(world, BROKER, "1")


# ---- ListConfigResources ---------------------------------------------------------------------------------------------


def listed(world: World, *types: int, version: int = 1) -> tuple[ErrorCode, list[tuple[int, str]]]:
    fields = {"resource_types": list(types)} if version else {}
    response = world.send(ApiKey.LIST_CONFIG_RESOURCES, version, **fields)
    found = [(each.resource_type, each.resource_name) for each in response.config_resources]
    return CODES[response.error_code], found


def test_resources_are_listed_by_type(world: World) -> None:
    world.topics.create("b", 1)
    world.topics.create("a", 1)
    topics, nodes = [(TOPIC, "a"), (TOPIC, "b")], [(BROKER, "1"), (LOGGER, "1")]
    assert listed(world) == (ErrorCode.NONE, topics + nodes)
    assert listed(world, TOPIC) == (ErrorCode.NONE, topics)
    assert listed(world, LOGGER, BROKER) == (ErrorCode.NONE, nodes)
    assert listed(world, GROUP, METRICS) == (ErrorCode.NONE, [])
    assert listed(world, TOPIC, 3) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert listed(world, version=0) == (ErrorCode.NONE, [])
    world.allow()
    assert listed(world) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
