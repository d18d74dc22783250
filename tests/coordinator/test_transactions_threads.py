"""The transaction coordinator with requests from several threads at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klog.errors import InvalidProducerEpoch
from klog.protocol import ErrorCode
from tests.support.transactions import Cluster, Producer

ROUNDS = 25
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("version", [1, 2])
def test_producers_with_the_same_transactional_id_fence_each_other(tmp_path: Path, version: int) -> None:
    """A producer that commits without an error has all its values in the log. The others have none."""
    cluster = Cluster(tmp_path, partitions=2)
    barrier = threading.Barrier(4)

    def work(number: int) -> list[bytes]:
        committed = []
        barrier.wait()
        for round_ in range(ROUNDS):
            producer = Producer(cluster, "shared", version)
            assert producer.init() is ErrorCode.NONE
            value = b"%d-%d" % (number, round_)
            try:
                errors = {producer.send(0, value), producer.send(1, value)}
            except InvalidProducerEpoch:
                continue
            result = producer.commit()
            assert result is ErrorCode.NONE or result in FENCED
            if errors == {ErrorCode.NONE} and result is ErrorCode.NONE:
                committed.append(value)
        return committed

    with ThreadPoolExecutor(4) as pool:
        committed = {value for found in pool.map(work, range(4)) for value in found}
    last = Producer(cluster, "shared", version)
    assert last.init() is ErrorCode.NONE
    assert set(cluster.values(0)) == set(cluster.values(1)) == committed
    assert not cluster.is_hanging(0) and not cluster.is_hanging(1)
    cluster.close()


def test_new_producers_get_different_ids(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    def work(number: int) -> list[int]:
        producers = [Producer(cluster, f"{number}-{round_}") for round_ in range(ROUNDS)]
        assert {producer.init() for producer in producers} == {ErrorCode.NONE}
        return [producer.id for producer in producers]

    with ThreadPoolExecutor(4) as pool:
        found = [producer_id for ids in pool.map(work, range(4)) for producer_id in ids]
    assert len(set(found)) == 4 * ROUNDS
    cluster.close()
