"""Properties files: Java's grammar, a server.properties as Kafka ships it, and round trips of every config."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config import LogConfig, ManagerConfig
from klog.config.broker_table import BROKER_KEYS
from klog.config.properties import format_properties, parse_properties
from klog.config.table import SYNONYMS, TOPIC_KEYS, Key
from klog.errors import InvalidConfig

# The settings of the server.properties in Kafka's distribution, with shortened comments.
SERVER = """\
# Licensed to nobody in particular.

############################# Server Basics #############################

# The role of this server. Setting this puts us in KRaft mode
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093

############################# Socket Server Settings #############################
#   FORMAT:
#     listeners = listener_name://host_name:port
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600

############################# Log Basics #############################
log.dirs=/tmp/kraft-combined-logs , /second/disk
num.partitions=1
num.recovery.threads.per.data.dir=1

############################# Internal Topic Settings  #############################
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

############################# Log Flush Policy #############################
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000

############################# Log Retention Policy #############################
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_the_server_properties_of_kafkas_distribution(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.properties"
    path.write_text(SERVER)
    with caplog.at_level(logging.WARNING, "klog.config"):
        broker = ManagerConfig.from_properties(path)
    assert broker.directories == broker.log_dirs == ("/tmp/kraft-combined-logs", "/second/disk")
    assert (broker.num_recovery_threads_per_data_dir, broker.socket_request_max_bytes) == (1, 104857600)
    assert dict(broker.topic_defaults) == {"retention.ms": 604_800_000, "segment.bytes": 1 << 30}
    assert len(caplog.records) == 1  # all unknown keys in one line
    assert "event=unknown_keys" in caplog.text
    assert "keys=advertised.listeners,controller.listener.names,controller.quorum" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "klog.config"):
        assert LogConfig.from_properties(path).retention_ms == 604_800_000
    assert len(caplog.records) == 1


def test_without_log_dirs_a_broker_uses_log_dir() -> None:
    assert ManagerConfig({"log.dir": "/a"}).directories == ("/a",)
    assert ManagerConfig({"log.dir": "/a", "log.dirs": "/b,/c"}).directories == ("/b", "/c")
    assert ManagerConfig().directories[0].endswith("kafka-logs")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a \t = \t 1 ", {"a": "1 "}),
        ("a", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a = : b", {"a": ": b"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a\\ b\\:=1", {"a b:": "1"}),
        ("a=1\\\n   2", {"a": "12"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# no comment here", {"a": "1# no comment here"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=\\u00e9\\t\\q", {"a": "\u00e9\tq"}),
        ("a=1\\", {"a": "1"}),
        ("=1", {"": "1"}),
        ("  # a=1\n ! b=2\n\n\t\nc=3\rd=4\r\ne=5", {"c": "3", "d": "4", "e": "5"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\u12", {"a": "u12"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),  # a surrogate pair, as Java writes it
        ("a=\\ud83d", {"a": "\ud83d"}),
    ],
)
def test_javas_grammar(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_text_round_trips(values: dict[str, str]) -> None:
    text = format_properties(values)
    assert text.isascii()
    assert parse_properties(text) == values


def value_of(key: Key) -> st.SearchStrategy[Any]:
    if key.choices:
        one = st.sampled_from(key.choices)
        return st.lists(one, unique=True, max_size=2).map(tuple) if key.type == "list" else one
    if key.type in ("int", "long"):
        assert key.low is not None
        assert key.high is not None
        numbers = st.integers(int(key.low), int(key.high))
        return numbers.filter(key.check) if key.check else numbers
    if key.type == "double":
        return st.floats(key.low, key.high, allow_nan=False, allow_infinity=False)
    if key.type == "bool":
        return st.booleans()
    text = st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"])).map(str.strip)
    return st.lists(text.filter(bool)).map(tuple) if key.type == "list" else text


def configs(table: dict[str, Key]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: value_of(key) for name, key in table.items()})


def made(kind: Any, values: dict[str, Any]) -> Any:
    try:
        return kind(values)
    except InvalidConfig:  # values that exclude each other
        return kind({name: value for name, value in values.items() if "lag" not in name and "ret" not in name})


@given(configs(TOPIC_KEYS))
def test_a_log_config_round_trips(values: dict[str, Any]) -> None:
    values.pop("remote.storage.enable", None)
    config = made(LogConfig, values)
    assert config_of(LogConfig, config) == config


PLAIN_SYNONYMS = {
    name: synonym.key for name, synonym in SYNONYMS.items() if synonym.factor == 1 and name not in BROKER_KEYS
}


@given(configs(BROKER_KEYS), configs(PLAIN_SYNONYMS))
def test_a_manager_config_round_trips(broker: dict[str, Any], synonyms: dict[str, Any]) -> None:
    config = made(ManagerConfig, {**synonyms, **broker})
    again = config_of(ManagerConfig, config)
    assert again == config
    assert again.given == config.given


def config_of(kind: Any, config: Any) -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(config.to_properties())
        file.flush()
        return kind.from_properties(file.name)
