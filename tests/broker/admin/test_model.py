"""After any sequence of requests and restarts the topics are those of a model.

Any request, however invalid, gets a response in its own version.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from klog.broker.late_apis import ADMIN_SLOW as SLOW
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import World
from tests.support.in_memory import memory

NAMES = st.sampled_from(["a", "b.c", "b_c", "d", "__consumer_offsets", "bad name"])
VALUES = {
    "retention.ms": st.sampled_from(["1", "2", "-1", "x"]),
    "cleanup.policy": st.sampled_from(["delete", "compact", "keep"]),
    "min.insync.replicas": st.sampled_from(["1", "3", "0"]),
}
CONFIG = st.fixed_dictionaries({}, optional=VALUES)
GOOD = {"retention.ms": ("1", "2", "-1"), "cleanup.policy": ("delete", "compact"), "min.insync.replicas": ("1", "3")}
INTERNAL = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


def is_good(config: dict[str, str]) -> bool:
    return all(value in GOOD[name] for name, value in config.items())


class Topics(RuleBasedStateMachine):
    """`model` is {topic: (number of partitions, the values that are set on the topic itself)}."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="klog-admin-", dir=memory()))
        self.model: dict[str, tuple[int, dict[str, str]]] = {}
        self.ids: dict[str, uuid.UUID] = {}

    @initialize()
    def start(self) -> None:
        self.world = World(self.path)

    def teardown(self) -> None:
        self.world.__exit__()
        shutil.rmtree(self.path)

    @rule(name=NAMES, partitions=st.integers(-1, 3), config=CONFIG, validate_only=st.booleans())
    def create(self, name: str, partitions: int, config: dict[str, str], validate_only: bool) -> None:
        Request = messages.CreateTopics.Request
        configs = [Request.Config(name=key, value=value) for key, value in config.items()]
        topic = Request.Topic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        response = self.world.send(ApiKey.CREATE_TOPICS, topics=[topic], validate_only=validate_only)
        (result,) = response.topics
        internal = name.startswith("__")
        collides = {"b.c": "b_c", "b_c": "b.c"}.get(name) in self.model
        possible = name != "bad name" and name not in self.model and not collides and is_good(config) and partitions
        possible = possible and not (internal and config.get("cleanup.policy", "compact") != "compact")
        assert (result.error_code == 0) == bool(possible)
        if possible and not validate_only:
            self.model[name] = 1 if partitions == -1 else partitions, {**config, **(INTERNAL if internal else {})}
            self.ids[name] = result.topic_id

    @rule(name=NAMES, by_id=st.booleans())
    def delete(self, name: str, by_id: bool) -> None:
        Topic = messages.DeleteTopics.Request.Topic
        asked = Topic(topic_id=self.ids.get(name, uuid.uuid4())) if by_id else Topic(name=name)
        (result,) = self.world.send(ApiKey.DELETE_TOPICS, topics=[asked]).responses
        possible = name in self.model and not name.startswith("__")
        assert (result.error_code == 0) == possible
        if possible:
            del self.model[name]

    @rule(name=NAMES, total=st.integers(-1, 5), validate_only=st.booleans())
    def extend(self, name: str, total: int, validate_only: bool) -> None:
        topic = messages.CreatePartitions.Request.Topic(name=name, count=total, assignments=None)
        response = self.world.send(ApiKey.CREATE_PARTITIONS, topics=[topic], validate_only=validate_only)
        possible = name in self.model and total > self.model[name][0] and not name.startswith("__")
        assert (response.results[0].error_code == 0) == possible
        if possible and not validate_only:
            self.model[name] = total, self.model[name][1]

    @rule(name=NAMES, config=CONFIG, deleted=st.sets(st.sampled_from(sorted(VALUES))), validate_only=st.booleans())
    def alter(self, name: str, config: dict[str, str], deleted: set[str], validate_only: bool) -> None:
        Request = messages.IncrementalAlterConfigs.Request
        changes: dict[str, str | None] = {**dict.fromkeys(deleted), **config}
        configs = [Request.Config(name=key, config_operation=int(v is None), value=v) for key, v in changes.items()]
        asked = Request.Resource(resource_type=2, resource_name=name, configs=configs)
        response = self.world.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[asked], validate_only=validate_only)
        possible = name in self.model and is_good(config)
        if possible:
            merged = {**self.model[name][1], **changes}
            after = {key: value for key, value in merged.items() if value is not None}
            possible = not name.startswith("__") or after.get("cleanup.policy") == "compact"
        assert (response.responses[0].error_code == 0) == possible
        if possible and not validate_only:
            self.model[name] = self.model[name][0], after

    @rule()
    def restart(self) -> None:
        self.world.__exit__()
        self.world = World(self.path)

    @invariant()
    def the_topics_are_those_of_the_model(self) -> None:
        topics = self.world.topics
        assert topics.names() == sorted(self.model)
        for name, (partitions, config) in self.model.items():
            info = topics.get(name)
            assert info is not None and topics.by_id(info.topic_id) == info
            assert (info.partitions, info.topic_id) == (partitions, self.ids[name])
            assert {key: str(value) for key, value in info.config.items()} == config
            assert topics.log(name, partitions - 1) is not None and topics.log(name, partitions) is None
        assert {name: len(each) for name, each in self.world.logs.topics().items()} == {
            name: partitions for name, (partitions, _) in self.model.items()
        }


TestTopics = Topics.TestCase

# ---- any request -----------------------------------------------------------------------------------------------------

TEXT = st.one_of(
    st.sampled_from(["", "a", "b", "1", "cleanup.policy", "retention.ms", "root", "klog.broker"]), st.text(max_size=9)
)
NUMBER = st.one_of(st.integers(-2, 9), st.sampled_from([-(2**31), 2**31 - 1]))
SMALL = st.one_of(st.integers(-2, 9), st.sampled_from([-(2**7), 2**7 - 1]))


def structs(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.builds(kind, **fields), max_size=4)


def requests() -> dict[ApiKey, st.SearchStrategy[Any]]:
    m = messages
    numbers = st.lists(NUMBER, max_size=3)
    create, extend, move = m.CreateTopics.Request, m.CreatePartitions.Request, m.AlterPartitionReassignments.Request
    increment, replace, epochs = (
        m.IncrementalAlterConfigs.Request,
        m.AlterConfigs.Request,
        m.OffsetForLeaderEpoch.Request,
    )
    delete, dirs, value = m.DeleteRecords.Request, m.AlterReplicaLogDirs.Request, st.one_of(st.none(), TEXT)
    pages, flag, ids = (
        m.DescribeTopicPartitions.Request,
        st.booleans(),
        st.one_of(st.just(uuid.UUID(int=0)), st.uuids()),
    )
    assignments = structs(create.Assignment, partition_index=NUMBER, broker_ids=numbers)
    return {
        ApiKey.CREATE_TOPICS: st.fixed_dictionaries(
            {
                "topics": structs(
                    create.Topic,
                    name=TEXT,
                    num_partitions=NUMBER,
                    replication_factor=SMALL,
                    assignments=assignments,
                    configs=structs(create.Config, name=TEXT, value=value),
                ),
                "validate_only": flag,
            }
        ),
        ApiKey.DELETE_TOPICS: st.fixed_dictionaries(
            {"topics": structs(m.DeleteTopics.Request.Topic, name=value, topic_id=ids)}
        ),
        ApiKey.CREATE_PARTITIONS: st.fixed_dictionaries(
            {
                "topics": structs(
                    extend.Topic,
                    name=TEXT,
                    count=NUMBER,
                    assignments=st.one_of(st.none(), structs(extend.Assignment, broker_ids=numbers)),
                ),
                "validate_only": flag,
            }
        ),
        ApiKey.DESCRIBE_CONFIGS: st.fixed_dictionaries(
            {
                "resources": structs(
                    m.DescribeConfigs.Request.Resource,
                    resource_type=SMALL,
                    resource_name=TEXT,
                    configuration_keys=st.one_of(st.none(), st.lists(TEXT, max_size=3)),
                )
            }
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: st.fixed_dictionaries(
            {
                "resources": structs(
                    increment.Resource,
                    resource_type=SMALL,
                    resource_name=TEXT,
                    configs=structs(increment.Config, name=TEXT, config_operation=SMALL, value=value),
                ),
                "validate_only": st.just(True),
            }
        ),
        ApiKey.ALTER_CONFIGS: st.fixed_dictionaries(
            {
                "resources": structs(
                    replace.Resource,
                    resource_type=SMALL,
                    resource_name=TEXT,
                    configs=structs(replace.Config, name=TEXT, value=value),
                ),
                "validate_only": st.just(True),
            }
        ),
        ApiKey.LIST_CONFIG_RESOURCES: st.fixed_dictionaries({"resource_types": st.lists(SMALL, max_size=4)}),
        ApiKey.DELETE_RECORDS: st.fixed_dictionaries(
            {
                "topics": structs(
                    delete.Topic,
                    name=TEXT,
                    partitions=structs(delete.Partition, partition_index=NUMBER, offset=NUMBER),
                )
            }
        ),
        ApiKey.DESCRIBE_LOG_DIRS: st.fixed_dictionaries(
            {"topics": st.one_of(st.none(), structs(m.DescribeLogDirs.Request.Topic, topic=TEXT, partitions=numbers))}
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: st.fixed_dictionaries(
            {"dirs": structs(dirs.Dir, path=TEXT, topics=structs(dirs.Topic, name=TEXT, partitions=numbers))}
        ),
        ApiKey.ELECT_LEADERS: st.fixed_dictionaries(
            {
                "election_type": SMALL,
                "topic_partitions": st.one_of(
                    st.none(), structs(m.ElectLeaders.Request.Topic, topic=TEXT, partitions=numbers)
                ),
            }
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: st.fixed_dictionaries(
            {
                "topics": structs(
                    move.Topic,
                    name=TEXT,
                    partitions=structs(move.Partition, partition_index=NUMBER, replicas=st.one_of(st.none(), numbers)),
                )
            }
        ),
        ApiKey.DESCRIBE_CLUSTER: st.fixed_dictionaries({"endpoint_type": SMALL}),
        ApiKey.DESCRIBE_QUORUM: st.fixed_dictionaries(
            {
                "topics": structs(
                    m.DescribeQuorum.Request.Topic,
                    topic_name=TEXT,
                    partitions=structs(m.DescribeQuorum.Request.Partition, partition_index=SMALL),
                )
            }
        ),
        ApiKey.UPDATE_FEATURES: st.fixed_dictionaries(
            {
                "feature_updates": structs(
                    m.UpdateFeatures.Request.FeatureUpdate, feature=TEXT, max_version_level=SMALL, upgrade_type=SMALL
                )
            }
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: st.fixed_dictionaries(
            {
                "topics": structs(
                    epochs.Topic,
                    topic=TEXT,
                    partitions=structs(
                        epochs.Partition, partition=NUMBER, current_leader_epoch=NUMBER, leader_epoch=NUMBER
                    ),
                )
            }
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: st.fixed_dictionaries(
            {
                "topics": structs(pages.Topic, name=TEXT),
                "response_partition_limit": NUMBER,
                "cursor": st.one_of(st.none(), st.builds(pages.Cursor, topic_name=TEXT, partition_index=NUMBER)),
            }
        ),
    }


@pytest.mark.parametrize("api", sorted(requests()), ids=lambda api: api.message)
def test_any_request_gets_a_response(api: ApiKey, tmp_path_factory: pytest.TempPathFactory) -> None:
    codes = set(map(int, ErrorCode)) - {int(ErrorCode.UNKNOWN_SERVER_ERROR)}

    @given(fields=requests()[api])
    def check(fields: dict[str, Any]) -> None:
        response = world.send(api, **fields)
        assert _codes(response) <= codes

    with World(tmp_path_factory.mktemp("data")) as world:
        world.topics.create("b", 2)
        check()


def _codes(found: Any) -> set[int]:
    """All error codes in a message, at any depth."""
    if isinstance(found, list):
        return set().union(*map(_codes, found))
    names = getattr(type(found), "__slots__", ())
    own = {getattr(found, name) for name in names if name.endswith("error_code")}
    return own.union(*(_codes(getattr(found, name)) for name in names))


def test_every_api_of_the_package_is_fuzzed_and_the_slow_apis_are_among_them(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        handled = set(world.admin.handlers())
    assert handled - {ApiKey.LIST_PARTITION_REASSIGNMENTS} == set(requests())
    assert handled > SLOW
