"""LogConfig and ManagerConfig: both spellings, types, bounds, precedence, and helpful errors."""

from __future__ import annotations

import logging
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from klog.config import LogConfig, ManagerConfig, check_tiering, split_config
from klog.config.broker_table import BROKER_KEYS
from klog.config.table import REMOVED, SYNONYMS, TOPIC_KEYS
from klog.errors import InvalidConfig


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda key: key.name)
def test_every_topic_key_has_a_legal_default_and_two_spellings(key: Any) -> None:
    config = LogConfig()
    assert config[key.name] == getattr(config, key.field) == key.default
    assert LogConfig({key.name: key.default}) == LogConfig({key.field: key.default}) == config
    if key.default is not None:
        text = ",".join(key.default) if isinstance(key.default, tuple) else str(key.default)
        assert LogConfig({key.name: text})[key.name] == key.default  # as text, from a properties file


@pytest.mark.parametrize("key", BROKER_KEYS.values(), ids=lambda key: key.name)
def test_every_broker_key_has_a_legal_default(key: Any) -> None:
    assert ManagerConfig({key.name: key.default})[key.name] == getattr(ManagerConfig(), key.field) == key.default


def test_kafkas_defaults() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.segment_ms, config.index_interval_bytes) == (1 << 30, 604_800_000, 4096)
    assert (config.segment_index_bytes, config.max_message_bytes) == (10_485_760, 1_048_588)
    assert (config.flush_messages, config.flush_ms) == (2**63 - 1, 2**63 - 1)
    assert (config.message_timestamp_after_max_ms, config.message_timestamp_before_max_ms) == (3_600_000, 2**63 - 1)
    assert config.cleanup_policy == ("delete",)
    assert (config.retention_ms, config.retention_bytes, config.file_delete_delay_ms) == (604_800_000, -1, 60_000)
    assert (config.delete_retention_ms, config.min_cleanable_dirty_ratio) == (86_400_000, 0.5)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (0, 2**63 - 1)
    assert (config.compression_type, config.message_timestamp_type) == ("producer", "CreateTime")
    assert (config.segment_jitter_ms, config.min_insync_replicas, config.preallocate) == (0, 1, False)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"segment.byte": 1}, r"unknown configuration key 'segment.byte'; did you mean segment.bytes\?"),
        ({"segment_byte": 1}, r"did you mean segment.bytes\?"),
        ({"retention.msec": 1}, r"did you mean retention.ms\?"),
        ({"log.rol.ms": 1}, r"did you mean log.roll.ms\?"),
        ({"colour": 1}, r"keys_known\(\)` lists the known ones"),
        ({5: 1}, "configuration keys must be str, not int"),
        ({"segment.bytes": 13}, "segment.bytes=13: must be at least 14"),
        ({"segment.bytes": 2**31}, "at most 2147483647"),
        ({"segment.bytes": "many"}, "segment.bytes='many': int expected"),
        ({"segment.bytes": 1.5}, "int expected"),
        ({"segment.bytes": True}, "int expected"),
        ({"segment.bytes": []}, "int expected"),
        ({"segment.bytes": b"14"}, "segment.bytes=b'14': int expected"),
        ({"retention.ms": Decimal("1.5")}, "long expected"),
        ({"retention.ms": 10**5000}, "retention.ms=<int>: must be at most"),
        ({"segment.ms": 0}, "at least 1"),
        ({"segment.jitter.ms": -1}, "at least 0"),
        ({"retention.ms": -2}, "at least -1"),
        ({"flush.ms": 2**63}, "at most"),
        ({"preallocate": "yes"}, "bool expected"),
        ({"preallocate": 1}, "bool expected"),
        ({"min.cleanable.dirty.ratio": 1.1}, "at most 1"),
        ({"min.cleanable.dirty.ratio": float("nan")}, "min.cleanable.dirty.ratio=nan"),
        ({"min.cleanable.dirty.ratio": b"0.5"}, "double expected"),
        ({"cleanup.policy": b"delete"}, "cleanup.policy=b'delete': list expected"),
        ({"cleanup.policy": ["delete", None]}, "list expected"),
        ({"cleanup.policy": "shred"}, "choose from delete, compact"),
        ({"compression.type": "brotli"}, "choose from producer, uncompressed, gzip, snappy, lz4, zstd"),
        ({"compression.type": 5}, "string expected"),
        ({"compression.gzip.level": 0}, "compression.gzip.level=0"),
        ({"message.timestamp.type": "Never"}, "CreateTime, LogAppendTime"),
        (
            {"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4},
            "min.compaction.lag.ms exceeds max.compaction.lag.ms",
        ),
        ({"local.retention.ms": 10, "retention.ms": 5}, "local.retention.ms=10 exceeds retention.ms=5"),
        ({"local.retention.bytes": -1, "retention.bytes": 5}, "local.retention.bytes=-1 exceeds"),
        ({"log.cleaner.threads": 1}, r"belongs to the log directory: give it to klog.open\(config=...\)"),
    ],
)
def test_errors_say_what_to_do(values: dict[Any, Any], match: str) -> None:
    with pytest.raises(InvalidConfig, match=match) as caught:
        LogConfig(values)
    assert caught.value.code == 40
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"segment.bytes": " 300 "}, "segment.bytes", 300),
        ({"segment.bytes": 300.0}, "segment.bytes", 300),
        ({"preallocate": " TRUE "}, "preallocate", True),
        ({"cleanup.policy": "compact, delete"}, "cleanup.policy", ("compact", "delete")),
        ({"cleanup.policy": ["compact"]}, "cleanup.policy", ("compact",)),
        ({"min.cleanable.dirty.ratio": "0.25"}, "min.cleanable.dirty.ratio", 0.25),
        ({"log.roll.hours": 2}, "segment.ms", 7_200_000),
        ({"log.roll.hours": 2, "log.roll.ms": 5}, "segment.ms", 5),
        ({"log.roll.ms": 5, "log.roll.hours": 2}, "segment.ms", 5),
        ({"log.roll.ms": 5, "segment.ms": 7}, "segment.ms", 7),
        ({"segment.ms": 7, "log_roll_ms": 5}, "segment.ms", 7),
        ({"log.retention.minutes": 3, "log.retention.hours": 1}, "retention.ms", 180_000),
        ({"log.retention.hours": -1}, "retention.ms", -1),
        ({"message.max.bytes": 900}, "max.message.bytes", 900),
    ],
)
def test_values_and_their_precedence(values: dict[str, Any], name: str, expected: Any) -> None:
    assert LogConfig(values)[name] == expected


def test_keywords_and_dict_may_be_mixed() -> None:
    config = LogConfig({"segment.bytes": 300}, segment_ms=5)
    assert (config.segment_bytes, config.segment_ms) == (300, 5)


def test_internal_segment_bytes_takes_precedence() -> None:
    assert LogConfig(segment_bytes=300).segment_size == 300
    assert LogConfig({"segment.bytes": 300, "internal.segment.bytes": 20}).segment_size == 20


def test_a_configuration_is_frozen_equal_by_value_hashable_and_pickles() -> None:
    config = LogConfig({"segment.bytes": 300})
    with pytest.raises(AttributeError, match=r"frozen; make a new one with .replace\(segment_bytes=...\)"):
        config.segment_bytes = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.given["segment.bytes"] = 5  # type: ignore[index]
    with pytest.raises(AttributeError, match=r"LogConfig has no 'segment_byte'; did you mean segment.bytes\?"):
        _ = config.segment_byte
    assert config == LogConfig(segment_bytes="300")
    assert config != LogConfig()
    assert hash(config) == hash(LogConfig(segment_bytes="300"))
    assert pickle.loads(pickle.dumps(config)) == config
    assert repr(config) == "LogConfig({'segment.bytes': 300})"
    manager = ManagerConfig({"log.segment.bytes": 300, "log.cleaner.threads": 2})
    again = pickle.loads(pickle.dumps(manager))
    assert (again, again.topic_defaults) == (manager, manager.topic_defaults)


def test_replacing_sets_and_removes_keys() -> None:
    config = LogConfig({"segment.bytes": 300, "segment.ms": 5})
    assert dict(config.replace({"segment.bytes": 400}, segment_ms=None).given) == {"segment.bytes": 400}
    assert config.segment_bytes == 300
    with pytest.raises(InvalidConfig, match="did you mean segment.bytes"):
        config.replace(segment_byte=1)
    with pytest.raises(InvalidConfig, match="at least 14"):
        config.replace(segment_bytes=1)


def test_none_removes_a_key() -> None:
    """10.4: a null value removes the key."""
    assert LogConfig({"segment.bytes": None, "retention_ms": None, "log.roll.hours": None}) == LogConfig()
    assert dict(LogConfig(segment_bytes=None).given) == {}
    assert ManagerConfig({"log.cleaner.threads": None, "log.roll.ms": None}) == ManagerConfig()
    with pytest.raises(InvalidConfig, match="did you mean segment.bytes"):
        LogConfig({"segment.byte": None})


def test_looking_up_an_unknown_key_names_the_nearest() -> None:
    """This holds for every use of a key: as item, attribute or argument, in either spelling."""
    config = LogConfig()
    assert config["segment_bytes"] == config["segment.bytes"]
    assert "segment_bytes" in config
    assert config.get("segment.byte") is None
    with pytest.raises(KeyError, match=r"LogConfig has no 'segment.byte'; did you mean segment.bytes\?"):
        _ = config["segment.byte"]
    with pytest.raises(KeyError, match=r"did you mean segment.bytes\?"):
        _ = config["segment_byte"]
    with pytest.raises(AttributeError, match=r"did you mean log.cleaner.threads\?"):
        _ = ManagerConfig().log_cleaner_thread
    with pytest.raises(KeyError, match=r"did you mean log.cleaner.threads\?"):
        _ = ManagerConfig()["log.cleaner.thread"]
    assert ManagerConfig()["log_cleaner_threads"] == 1


@pytest.mark.parametrize("name", REMOVED)
def test_removed_keys_are_accepted_and_ignored(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """10.4: deprecated, removed in 4.0: message.format.version, .downconversion.enable,
    .timestamp.difference.max.ms."""
    with caplog.at_level(logging.WARNING, "klog.config"):
        assert LogConfig({name: "2.8"}) == LogConfig(**{name.replace(".", "_"): "x"}) == LogConfig()
        assert ManagerConfig({name: "2.8"}) == ManagerConfig()
        assert LogConfig().replace({name: "x"}) == LogConfig()
    assert [record.getMessage().split(" instead=")[0] for record in caplog.records] == [
        f"event=removed_key key={name} since=4.0"
    ] * 4


def test_a_small_segment_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """10.4: segment.bytes below 1 MiB, which Kafka 4.0 refuses. It warns where it is set, not wherever it is used."""

    def warnings_of(make: Any) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "klog.config"):
            make()
        return sum("event=small_segments" in record.getMessage() for record in caplog.records)

    path = tmp_path / "p"
    path.write_text("log.segment.bytes=1000\n")
    small = LogConfig(segment_bytes=1000)
    assert warnings_of(lambda: LogConfig(segment_bytes=(1 << 20) - 1)) == 1
    assert warnings_of(lambda: LogConfig(segment_bytes=1 << 20)) == 0
    assert warnings_of(lambda: LogConfig({"segment.bytes": 1000, "internal.segment.bytes": 1000})) == 0
    assert warnings_of(lambda: LogConfig({"internal.segment.bytes": 1000})) == 0
    assert warnings_of(lambda: ManagerConfig({"log.segment.bytes": 1000})) == 1
    assert warnings_of(lambda: LogConfig.from_properties(path)) == 1
    assert warnings_of(lambda: ManagerConfig.from_properties(path)) == 1
    assert warnings_of(lambda: small.replace(segment_ms=5)) == 0
    assert warnings_of(lambda: small.replace(segment_bytes=1001)) == 1
    assert warnings_of(lambda: pickle.loads(pickle.dumps(small))) == 0
    assert warnings_of(lambda: ManagerConfig().topic_config({"segment.bytes": 1000})) == 0
    assert warnings_of(lambda: ManagerConfig().altered({"log.segment.bytes": 1000})) == 1


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"cleanup.policy": "compact"}, "a compacted topic cannot be tiered"),
        ({"cleanup.policy": "compact,delete"}, "a compacted topic cannot be tiered"),
        (
            {"remote.log.copy.disable": True, "local.retention.ms": 5},
            "local.retention.ms=5 must be retention.ms=604800000 or -2",
        ),
        (
            {"remote.log.copy.disable": True, "local.retention.bytes": 5, "retention.bytes": 6},
            "local.retention.bytes=5 must be retention.bytes=6 or -2",
        ),
    ],
)
def test_invalid_configs_of_tiered_topics(values: dict[str, Any], match: str) -> None:
    """10.4: tiering with compact; copy disabled with unequal retentions."""
    LogConfig(values)
    with pytest.raises(InvalidConfig, match=match):
        LogConfig({"remote.storage.enable": True, **values})
    assert LogConfig({"remote.storage.enable": True, "remote.log.copy.disable": True, "cleanup.policy": ""})


def test_tiering_needs_the_systems_permission() -> None:
    """10.4: tiering when the system is off; tiering switched off without delete.on.disable."""
    tiered, plain = LogConfig({"remote.storage.enable": True}), LogConfig()
    on, off = ManagerConfig({"remote.log.storage.system.enable": True}), ManagerConfig()
    check_tiering(None, tiered, on)
    check_tiering(plain, plain, off)
    with pytest.raises(InvalidConfig, match=r"set remote.log.storage.system.enable=true first"):
        check_tiering(None, tiered, off)
    with pytest.raises(InvalidConfig, match=r"remote.log.delete.on.disable=true"):
        check_tiering(tiered, plain, on)
    check_tiering(tiered, LogConfig({"remote.log.delete.on.disable": True}), on)


def test_precedence_topic_then_run_time_then_start_then_default() -> None:
    """10.4: topic override > dynamic > static > default."""
    static = ManagerConfig({"log.retention.hours": 1, "log.roll.ms": 5, "log.segment.bytes": 1 << 21})
    now = static.altered({"log.retention.ms": 7, "log.segment.bytes": None})
    assert now.topic_config({"retention.ms": 9}).retention_ms == 9
    assert now.topic_config({}).retention_ms == 7
    assert static.topic_config({}).retention_ms == 3_600_000
    assert now.topic_config({}).segment_bytes == 1 << 21
    assert ManagerConfig().topic_config({}).retention_ms == 604_800_000
    assert static.topic_defaults["retention.ms"] == 3_600_000  # frozen: altered() returned another object


def test_keys_that_may_change_at_run_time() -> None:
    """10.4, column Dynamic: hours and minutes never, threads by half or double."""
    config = ManagerConfig({"num.recovery.threads.per.data.dir": 4})
    for name in ("log.retention.hours", "log.roll.hours", "log.dirs", "log.retention.check.interval.ms"):
        with pytest.raises(InvalidConfig, match=f"{name} cannot change while the directory is open"):
            config.altered({name: "5"})
    for threads in (2, 8):
        assert config.altered({"num.recovery.threads.per.data.dir": threads}, config).num_recovery_threads_per_data_dir
    for threads in (1, 9):
        with pytest.raises(InvalidConfig, match="it is 4 now; choose 2 to 8"):
            config.altered({"num.recovery.threads.per.data.dir": threads}, config)
    with pytest.raises(InvalidConfig, match="did you mean log.cleaner.threads"):
        config.altered({"log.cleaner.thread": 1})
    assert config.altered({"log_cleaner_backoff_ms": 5, "retention.ms": 6}).topic_defaults["retention.ms"] == 6


def test_equality_includes_topic_defaults() -> None:
    assert ManagerConfig({"log.segment.bytes": 1 << 21}) != ManagerConfig()
    assert ManagerConfig({"log.roll.hours": 1}) == ManagerConfig({"segment.ms": 3_600_000})
    assert hash(ManagerConfig({"log.roll.hours": 1})) == hash(ManagerConfig({"segment.ms": 3_600_000}))
    assert ManagerConfig() != LogConfig()


def test_secrets_are_not_shown() -> None:
    config = ManagerConfig({"ssl.keystore.password": "hunter2"})
    assert config.ssl_keystore_password == "hunter2"
    assert "hunter2" not in repr(config)
    with pytest.raises(InvalidConfig, match="string expected") as caught:
        ManagerConfig({"ssl.keystore.password": 12345678})
    assert "12345678" not in str(caught.value)


def test_hours_and_minutes_are_32_bit_numbers() -> None:
    with pytest.raises(InvalidConfig, match=r"log.roll.hours=.*at most 2147483647"):
        LogConfig({"log.roll.hours": 2**31})
    assert LogConfig({"log.roll.hours": 2**31 - 1}).segment_ms == (2**31 - 1) * 3_600_000


def test_flush_ms_defaults_to_the_flushers_period() -> None:
    """10.4: flush.ms falls back to log.flush.scheduler.interval.ms."""
    config = ManagerConfig({"log.flush.scheduler.interval.ms": 50})
    assert (config.log_flush_scheduler_interval_ms, config.topic_defaults["flush.ms"]) == (50, 50)
    config = ManagerConfig({"log.flush.scheduler.interval.ms": 50, "log.flush.interval.ms": 70})
    assert (config.log_flush_scheduler_interval_ms, config.topic_defaults["flush.ms"]) == (50, 70)


def test_replacing_needs_topic_keys() -> None:
    """A broker key is not a topic key: the error must not suggest the same key."""
    with pytest.raises(
        InvalidConfig, match=r"unknown configuration key 'log.segment.bytes'; did you mean segment.bytes\?"
    ):
        LogConfig().replace({"log.segment.bytes": 300})


def test_a_mixed_dict_is_split() -> None:
    log, manager = split_config({"segment.bytes": 300, "log.roll.ms": 5, "producer.id.expiration.ms": 9})
    assert (log.segment_bytes, log.segment_ms, manager.producer_id_expiration_ms) == (300, 5, 9)
    with pytest.raises(InvalidConfig, match="did you mean"):
        split_config({"segment.byte": 1})
    assert split_config(None) == (LogConfig(), ManagerConfig())
    given = LogConfig(segment_bytes=300)
    assert split_config(given)[0] is given


def test_manager_config_keeps_topic_defaults_apart() -> None:
    config = ManagerConfig({"log.segment.bytes": 300, "log_cleaner_threads": "2", "retention.ms": 5})
    assert dict(config.given) == {"log.cleaner.threads": 2}
    assert dict(config.topic_defaults) == {"segment.bytes": 300, "retention.ms": 5}
    with pytest.raises(InvalidConfig, match="segment.bytes=1"):
        ManagerConfig({"log.segment.bytes": 1})
    with pytest.raises(AttributeError, match="ManagerConfig has no 'segment_bytes'"):
        _ = config.segment_bytes


def test_no_key_has_two_meanings() -> None:
    """A topic key is not a broker key, and a broker key sets one thing, except the flusher's period, which Kafka also
    uses for flush.ms where log.flush.interval.ms is not set."""
    assert not set(TOPIC_KEYS) & set(BROKER_KEYS)
    assert set(SYNONYMS) & set(BROKER_KEYS) == {"log.flush.scheduler.interval.ms"}
    assert not set(REMOVED) & {*TOPIC_KEYS, *BROKER_KEYS, *SYNONYMS}


# ---- properties files ------------------------------------------------------------------------------------------------

PROPERTIES = """# a comment
! another = one

segment.bytes=300
 retention.ms : 5\x20\x20
cleanup.policy = compact,\\
    delete
log.roll.hours=2
log.cleaner.threads=2
zookeeper.connect=localhost:2181
# a comment does not go on \\
index.interval.bytes=7
listeners=PLAINTEXT://:9092
"""


def test_a_properties_file_is_read_as_in_java(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES)
    with caplog.at_level(logging.WARNING, "klog.config"):
        config = LogConfig.from_properties(path)
    assert dict(config.given) == {
        "segment.bytes": 300,
        "retention.ms": 5,
        "cleanup.policy": ("compact", "delete"),
        "segment.ms": 7_200_000,
        "index.interval.bytes": 7,
    }
    assert "keys=listeners,zookeeper.connect" in caplog.text  # a broker's other keys: logged, not refused
    manager = ManagerConfig.from_properties(str(path))
    assert manager.log_cleaner_threads == 2
    assert manager.topic_defaults["segment.bytes"] == 300


def test_a_properties_file_with_a_bad_value_raises(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("segment.bytes=large\n")
    for read in (LogConfig.from_properties, ManagerConfig.from_properties):
        with pytest.raises(InvalidConfig, match="segment.bytes='large'"):
            read(path)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"segment.bytes=300\\", {"segment.bytes": 300}),  # the file ends at a line continuation
        (b"# M\xfcller\nsegment.bytes=300", {"segment.bytes": 300}),  # Latin-1, as in Java
        (b"segment.bytes=300\r\nsegment.ms=5\r\n", {"segment.bytes": 300, "segment.ms": 5}),
        (b"segment.bytes=300\nsegment.bytes=400\n", {"segment.bytes": 400}),
        (b"", {}),
    ],
)
def test_odd_properties_files(tmp_path: Path, data: bytes, expected: dict[str, int]) -> None:
    path = tmp_path / "p"
    path.write_bytes(data)
    assert dict(LogConfig.from_properties(path).given) == expected
