"""The transaction coordinator after restarts, crashes and disk failures, and with timeouts.

Kafka: TransactionStateManagerTest, TransactionCoordinatorTest, ProducerIdManagerTest.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.coordinator.transactions import TransactionConfig
from klog.coordinator.transactions.metadata import STATES, TransactionMetadata
from klog.coordinator.transactions.producer_ids import BLOCK, FILE, PLAUSIBLE, ProducerIds
from klog.coordinator.transactions.state_log import StateLog, _metadata_of, _value_of
from klog.disk import RealFiles
from klog.errors import CorruptCheckpoint, NewerFormat, StorageOffline
from klog.internal_topics import encode_key
from klog.internal_topics.transaction_state import STATES as KAFKA_STATES
from klog.protocol import ErrorCode
from tests.support.batches import marker, transactional
from tests.support.golden import HOME
from tests.support.topics import ManagerTopics
from tests.support.transactions import NOW, OFFSETS, STATE, TOPIC, Cluster, Killed, Producer

BOTH = pytest.mark.parametrize("version", [1, 2])
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def started(cluster: Cluster, version: int = 2, name: str = "t", timeout_ms: int = 60_000) -> Producer:
    producer = Producer(cluster, name, version, timeout_ms)
    assert producer.init() is ErrorCode.NONE
    return producer


# ---- restarts ------------------------------------------------------------------------------------------------------


@BOTH
def test_an_open_transaction_continues_after_a_restart(cluster: Cluster, version: int) -> None:
    producer = started(cluster, version)
    producer.send(0, b"a")
    before = cluster.coordinator._registry.all()
    cluster.start()
    assert cluster.coordinator._registry.all() == before
    producer.send(1, b"b")
    assert producer.commit() is ErrorCode.NONE
    assert cluster.values(0) == [b"a"] and cluster.values(1) == [b"b"]


@BOTH
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("partition", [(TOPIC, 0), (TOPIC, 1), (OFFSETS, 0)])
def test_a_prepared_transaction_is_completed_after_a_crash(
    cluster: Cluster, version: int, committed: bool, partition: tuple[str, int]
) -> None:
    producer = started(cluster, version)
    producer.send(0, b"a")
    producer.send(1, b"b")
    assert producer.add_offsets() is ErrorCode.NONE
    cluster.topics.faults[partition] = Killed()
    with pytest.raises(Killed):
        producer.end(committed)
    cluster.topics.faults.clear()
    cluster.markers.clear()
    cluster.start()
    assert cluster.values(0) == ([b"a"] if committed else [])
    assert cluster.values(1) == ([b"b"] if committed else [])
    assert not cluster.is_hanging(0) and not cluster.is_hanging(1)
    assert cluster.markers == [(0, producer.id, committed)]
    kind = "Commit" if committed else "Abort"
    assert [state for state, _, _ in cluster.states_in_log("t")][-2:] == [f"Prepare{kind}", f"Complete{kind}"]
    assert producer.end(committed) is ErrorCode.NONE  # the response was lost


def test_a_crash_while_epochs_run_out(cluster: Cluster) -> None:
    producer = started(cluster)
    entry = cluster.registry.get("t")
    assert entry is not None and entry.metadata is not None
    entry.become(entry.metadata._replace(producer_epoch=32_766))
    producer.epoch = 32_766
    producer.send(0, b"a")
    cluster.topics.faults[TOPIC, 0] = Killed()
    with pytest.raises(Killed):
        producer.commit()
    cluster.topics.faults.clear()
    cluster.start()
    assert producer.commit() is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 0)
    assert cluster.values(0) == [b"a"]


def test_a_decision_has_no_effect_before_its_record_is_in_the_log(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.send(0, b"a")
    cluster.topics.faults[STATE, 0] = StorageOffline("gone")
    assert producer.commit() is ErrorCode.NOT_COORDINATOR
    assert producer.send(1, b"b") is ErrorCode.NOT_COORDINATOR
    assert producer.init() is ErrorCode.NOT_COORDINATOR
    assert Producer(cluster, "new").init() is ErrorCode.NOT_COORDINATOR
    assert cluster.coordinator._registry.names() == ["t"]
    cluster.clock.advance(120_000)
    cluster.clock.advance(WEEK_MS)
    assert cluster.state("t") == "Ongoing"
    assert cluster.control(0) == []
    cluster.topics.faults.clear()
    cluster.clock.advance(10_000)
    assert cluster.state("t") == "CompleteAbort"
    assert cluster.control(0) == [("abort", 0, 1)]


def test_a_failed_append_is_an_error_of_the_coordinator(cluster: Cluster) -> None:
    producer = started(cluster)
    for fault, error in (
        (OSError(errno.ENOSPC, "full"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (klog.errors.UnknownTopicOrPartition("gone"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (klog.errors.RecordTooLarge("large"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        cluster.topics.faults[STATE, 0] = fault
        assert producer.send(0, b"a") is error


def test_a_marker_that_cannot_be_written_is_tried_again(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    producer.send(0, b"a")
    producer.send(1, b"b")
    cluster.topics.faults[TOPIC, 1] = OSError(errno.ENOSPC, "full")
    assert producer.commit() is ErrorCode.NONE  # the decision is in the log
    assert cluster.values(0) == [b"a"] and cluster.values(1) == []
    assert cluster.state("t") == "PrepareCommit"
    assert producer.commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE
    assert producer.send(0, b"c") is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.clock.advance(20_000)
    assert cluster.state("t") == "PrepareCommit"
    cluster.topics.faults.clear()
    cluster.clock.advance(10_000)
    assert cluster.state("t") == "CompleteCommit"
    assert cluster.values(1) == [b"b"]
    assert len(cluster.control(0)) == len(cluster.control(1)) == 1


def test_requests_of_version_2_while_a_marker_is_missing(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.send(0, b"a")
    cluster.topics.faults[TOPIC, 0] = OSError(errno.ENOSPC, "full")
    assert producer.commit() is ErrorCode.NONE
    assert producer.epoch == 1
    assert producer.send(1, b"b") is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    producer.epoch = 0  # the response was lost
    assert producer.commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE
    producer.epoch = 5
    assert producer.commit() is ErrorCode.PRODUCER_FENCED
    cluster.topics.faults.clear()
    assert producer.init() is ErrorCode.NONE  # the request completes the transaction first
    assert cluster.values(0) == [b"a"]


def test_a_new_producer_id_before_all_markers_are_written(cluster: Cluster) -> None:
    producer = started(cluster)
    entry = cluster.registry.get("t")
    assert entry is not None and entry.metadata is not None
    entry.become(entry.metadata._replace(producer_epoch=32_766))
    producer.epoch = 32_766
    producer.send(0, b"a")
    cluster.topics.faults[TOPIC, 0] = OSError(errno.ENOSPC, "full")
    assert producer.commit() is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 0)
    assert producer.send(1, b"b") is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.topics.faults.clear()
    cluster.clock.advance(1000)
    assert producer.send(1, b"b") is ErrorCode.NONE


def test_partitions_that_were_deleted_need_no_marker(cluster: Cluster) -> None:
    cluster.manager.create_topic("brief", 1)
    producer = started(cluster)
    producer.send(0, b"a", topic="brief")
    producer.send(0, b"b")
    cluster.manager.delete_topic("brief")
    assert producer.commit() is ErrorCode.NONE
    assert cluster.state("t") == "CompleteCommit" and cluster.values(0) == [b"b"]


def test_a_marker_has_the_coordinator_epoch_of_an_earlier_broker(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    producer.append(0, b"u")
    cluster.log(0).append_batches(marker(producer.id, 0, "abort", coordinator=9), origin="coordinator")
    (error,) = producer.add(0)
    assert error is ErrorCode.NONE
    producer.append(0, b"v")
    assert producer.commit() is ErrorCode.NONE
    assert cluster.values(0) == [b"v"]
    assert cluster.log(0).producers[producer.id].coordinator_epoch == 9


def test_a_partition_with_a_later_producer_epoch_gets_no_marker(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    producer.add(0, 1)
    cluster.log(0).append_batches(transactional(producer.id, 5, 0, 1))
    assert producer.commit() is ErrorCode.NONE
    assert cluster.control(0) == [] and cluster.control(1) == [("commit", 0, 0)]
    assert cluster.state("t") == "CompleteCommit"


# ---- the log -------------------------------------------------------------------------------------------------------


def test_the_records_of_kafka_are_read_and_written_byte_for_byte() -> None:
    seen = set()
    with klog.open(HOME / "internal" / "logdir", read_only=True) as manager:
        for record in manager.log(STATE).read():
            decoded = klog.internal_topics.decode(record, STATE)
            assert decoded is not None and decoded.key is not None and decoded.value is not None
            metadata = _metadata_of(decoded.key["transactional_id"], decoded.value)
            assert _value_of(metadata) == record.value
            seen.add((metadata.state, bool(metadata.partitions), metadata.client_version))
        last = StateLog(ManagerTopics(manager)).load()
    assert seen >= {("Ongoing", True, 2), ("PrepareAbort", True, 2), ("CompleteAbort", False, 2)}
    assert last["int-0"] == metadata


def test_the_states_have_the_numbers_of_kafka() -> None:
    assert dict(enumerate(STATES)) == KAFKA_STATES


def test_all_fields_survive(cluster: Cluster) -> None:
    log = StateLog(cluster.topics)
    given = [
        TransactionMetadata("a", 5, 1000, NOW, 3, -1, 5, state="Ongoing", partitions=frozenset({("x", 1), ("y", 0)})),
        TransactionMetadata("b", 6, 1000, NOW, 0, -1, 2, 9, "PrepareAbort", frozenset({("x", 1)}), NOW - 5, 2),
        TransactionMetadata("\u00fc" * 16_000, 7, 2**31 - 1, 2**62, 32_767, -1, 7),
    ]
    for each in given:
        log.put(each)
    log.put(given[0]._replace(transactional_id="gone"))
    log.remove("gone")
    assert log.load() == {each.transactional_id: each for each in given}


def test_records_that_cannot_be_decoded_are_skipped(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    producer = started(cluster)
    good = cluster.registry.all()[0]
    key = encode_key("transaction", transactional_id="t")
    for bad in (
        (b"\0\7zzz", b"v"),  # an unknown type
        (key, b"\0\1\0"),
        (key, b"\0\x09" + bytes(40)),
        (key, _value_of(good).replace(b"\0\0\xea\x60\0", b"\0\0\xea\x60\x63")),  # state 99
    ):
        cluster.log(0, STATE).append([bad])
    cluster.start()
    assert caplog.text.count("transaction_record_skipped") == 4
    assert cluster.registry.all() == [good]
    assert producer.send(0, b"v") is ErrorCode.NONE


def test_records_with_the_states_dead_and_prepare_epoch_fence_are_loaded(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.send(0, b"a")
    (good,) = cluster.registry.all()
    log = StateLog(cluster.topics)
    log.put(good._replace(transactional_id="dead", state="Dead"))
    log.put(good._replace(state="PrepareEpochFence"))
    cluster.start()
    assert cluster.registry.names() == ["t"]
    assert cluster.state("t") == "CompleteAbort"
    assert cluster.control(0) == [("abort", 0, 1)]


def test_ids_are_spread_over_the_partitions(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, internal_partitions=5)
    for name in "abcde":
        assert started(cluster, name=name).commit() is ErrorCode.INVALID_TXN_STATE
    assert [cluster.log(number, STATE).log_end_offset for number in range(5)] == [1] * 5
    cluster.start()
    assert sorted(cluster.registry.names()) == list("abcde")
    cluster.close()


# ---- the clock -----------------------------------------------------------------------------------------------------


@BOTH
def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, version: int) -> None:
    producer, other = started(cluster, version), started(cluster, version, "other", 900_000)
    producer.send(0, b"a")
    other.send(1, b"b")
    cluster.clock.advance(60_000)
    assert cluster.state("t") == "Ongoing"
    cluster.clock.advance(10_000)
    assert cluster.state("t") == "CompleteAbort" and cluster.state("other") == "Ongoing"
    assert cluster.control(0) == [("abort", 0, 1)] and not cluster.is_hanging(0)
    assert producer.send(0, b"c") is ErrorCode.PRODUCER_FENCED
    with pytest.raises(klog.errors.InvalidProducerEpoch):
        producer.append(0, b"c")
    if version == 1:
        assert producer.commit() is ErrorCode.PRODUCER_FENCED
    else:
        assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.init() is ErrorCode.NONE
    assert producer.epoch == 2
    assert producer.send(0, b"d") is producer.commit() is ErrorCode.NONE
    assert cluster.values(0) == [b"d"]


def test_an_aborted_producer_of_version_2_never_gets_the_last_epoch(cluster: Cluster) -> None:
    producer = started(cluster)
    entry = cluster.registry.get("t")
    assert entry is not None and entry.metadata is not None
    entry.become(entry.metadata._replace(producer_epoch=32_766))
    producer.epoch = 32_766
    producer.send(0, b"a")
    cluster.clock.advance(70_000)
    assert cluster.state("t") == "CompleteAbort"
    assert producer.abort() is ErrorCode.PRODUCER_FENCED


def test_a_transaction_timeout_is_not_extended_by_a_restart(cluster: Cluster) -> None:
    started(cluster).send(0, b"a")
    cluster.clock.advance(55_000)
    cluster.start()
    cluster.clock.advance(10_000)
    assert cluster.state("t") == "CompleteAbort"


@pytest.mark.parametrize("end", ["nothing", "commit", "abort"])
def test_unused_transactional_ids_expire(cluster: Cluster, end: str) -> None:
    producer = started(cluster)
    if end != "nothing":
        producer.send(0, b"a")
        assert producer.end(end == "commit") is ErrorCode.NONE
    cluster.clock.advance(WEEK_MS - 1)
    assert cluster.registry.names() == ["t"]
    cluster.clock.advance(HOUR_MS)
    assert cluster.registry.names() == []
    assert cluster.described("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    cluster.start()
    assert cluster.registry.names() == []
    assert producer.send(0, b"b") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    last = producer.id
    assert producer.init() is ErrorCode.NONE
    assert producer.id > last and producer.epoch == 0


def test_ids_with_an_undecided_transaction_are_kept(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, transaction_max_timeout_ms=2**31 - 1, transactional_id_expiration_ms=HOUR_MS)
    open_one, prepared = started(cluster, timeout_ms=2**31 - 1), started(cluster, name="p", timeout_ms=2**31 - 1)
    open_one.send(0, b"a")
    prepared.send(1, b"b")
    cluster.topics.faults[TOPIC, 1] = OSError(errno.EIO, "bad")
    assert prepared.commit() is ErrorCode.NONE
    cluster.clock.advance(5 * HOUR_MS)
    assert cluster.state("t") == "Ongoing" and cluster.state("p") == "PrepareCommit"
    cluster.close()


def test_an_id_is_kept_if_its_tombstone_cannot_be_written(cluster: Cluster) -> None:
    started(cluster)
    cluster.topics.faults[STATE, 0] = StorageOffline("gone")
    cluster.clock.advance(WEEK_MS + HOUR_MS)
    assert cluster.registry.names() == ["t"]
    cluster.topics.faults.clear()
    cluster.clock.advance(HOUR_MS)
    assert cluster.registry.names() == []


def test_no_transaction_is_ended_after_close(cluster: Cluster) -> None:
    started(cluster).send(0, b"a")
    prepared = started(cluster, name="prepared")
    prepared.send(1, b"b")
    cluster.topics.faults[TOPIC, 1] = OSError(errno.EIO, "bad")
    assert prepared.commit() is ErrorCode.NONE
    cluster.coordinator.close()
    cluster.topics.faults.clear()
    cluster.clock.advance(WEEK_MS)
    assert cluster.is_hanging(0) and cluster.is_hanging(1)


@pytest.mark.parametrize("value", [0, -1, "x"])
def test_settings_are_checked(value: object) -> None:
    with pytest.raises((ValueError, TypeError), match=r"transaction.max.timeout.ms"):
        TransactionConfig.of({"transaction.max.timeout.ms": value})


def test_settings_have_the_names_of_kafka() -> None:
    # "6" is a text, as in a properties file.
    given = {"transaction.max.timeout.ms": 5, "transactional.id.expiration.ms": "6", "other": 7}
    found = TransactionConfig.of(given)
    assert (found.transaction_max_timeout_ms, found.transactional_id_expiration_ms) == (5, 6)
    assert TransactionConfig.of({}) == TransactionConfig()


# ---- producer ids --------------------------------------------------------------------------------------------------


def test_ids_never_repeat_after_a_kill(tmp_path: Path) -> None:
    found: list[int] = []
    for _ in range(3):
        ids = ProducerIds(RealFiles(), str(tmp_path), list)
        found += [ids.next() for _ in range(BLOCK + 1)]
    assert len(set(found)) == 3 * (BLOCK + 1) and found == sorted(found)
    assert found[0] == 0
    assert json.loads((tmp_path / FILE).read_text())["next"] == 6 * BLOCK


def test_ids_begin_above_those_in_use(tmp_path: Path) -> None:
    assert ProducerIds(RealFiles(), str(tmp_path), lambda: [5, -1, 41, PLAUSIBLE, 2**63 - 1]).next() == 42
    assert ProducerIds(RealFiles(), str(tmp_path), lambda: [7]).next() == 42 + BLOCK


def test_ids_in_the_logs_are_in_use(cluster: Cluster) -> None:
    cluster.log(2).append_batches(transactional(300, 0, 0, 1))
    StateLog(cluster.topics).put(
        TransactionMetadata("x", 1, 1, NOW, 0, -1, 200, 500, "PrepareCommit", client_version=2)
    )
    cluster.start()
    assert started(cluster).id == 501


def test_a_block_that_cannot_be_reserved(tmp_path: Path) -> None:
    class Full(RealFiles):
        def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
            raise OSError(errno.ENOSPC, "full", path)

    ids = ProducerIds(Full(), str(tmp_path), list)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            ids.next()
    assert ProducerIds(RealFiles(), str(tmp_path), list).next() == 0


@pytest.mark.parametrize(
    "text", ["", "{", '{"version": 1}', '{"version": 1, "next": -1}', '{"version": 1, "next": "1"}']
)
def test_a_damaged_file_of_ids(cluster: Cluster, text: str) -> None:
    (cluster.path / FILE).write_text(text)
    assert Producer(cluster).init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(CorruptCheckpoint, match="remove the file"):
        ProducerIds(RealFiles(), str(cluster.path), list).next()


def test_a_flipped_digit_in_the_file_of_ids(tmp_path: Path) -> None:
    ProducerIds(RealFiles(), str(tmp_path), list).next()
    path = tmp_path / FILE
    path.write_text(path.read_text().replace("1000", "2000"))
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        ProducerIds(RealFiles(), str(tmp_path), list).next()
    path.write_text('{"version": 2, "next": 5}')
    with pytest.raises(NewerFormat):
        ProducerIds(RealFiles(), str(tmp_path), list).next()


def test_the_last_ids(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"version": 1, "next": 2**63 - 1 - BLOCK}))
    ids = ProducerIds(RealFiles(), str(tmp_path), list)
    assert [ids.next() for _ in range(BLOCK)][-1] == 2**63 - 2
    with pytest.raises(OverflowError):
        ids.next()


def test_the_file_of_producer_ids_does_not_disturb_the_log_manager(cluster: Cluster) -> None:
    started(cluster)
    cluster.close()
    with klog.open(cluster.path) as manager:
        assert manager.clean_shutdown
        assert sorted(manager.topics()) == [OFFSETS, STATE, TOPIC]
        cluster.manager = manager
        cluster.topics = type(cluster.topics)(manager)
        cluster.start()
        assert started(cluster).epoch == 1
        assert started(cluster, name="other").id == BLOCK
        cluster.coordinator.close()
