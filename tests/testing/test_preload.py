"""TestBroker.load and TestBroker(copy_of=...): records that exist before the test begins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.errors import KlogError
from klog.testing import TestBroker, copying
from klog.testing.copying import copy_directory
from klog.testing.waiting import wait_for
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient
from tests.testing.test_several_brokers import fetch_request
from tests.testing.test_test_broker import produce

FLIGHTS = Path(__file__).resolve().parent.parent / "golden" / "flights" / "logdir"


def tree(path: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(each.relative_to(path)): (each.stat().st_mtime_ns, each.stat().st_size, each.read_bytes())
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


def test_json_lines_csv_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"id": "a", "sum": 1}\n{"id": "b", "sum": 2}\n')
    (tmp_path / "orders.csv").write_text("id,sum\nc,3\n")
    with TestBroker() as b:
        assert len(b.load("orders", tmp_path / "orders.jsonl", key="id").records()) == 2
        b.load("orders", str(tmp_path / "orders.csv"), key="id")
        assert [record.key for record in b.topic("orders").records()] == [b"a", b"b", b"c"]
        assert json.loads(b.topic("orders").values()[1] or b"") == {"id": "b", "sum": 2}
        with pytest.raises(FileNotFoundError):
            b.load("orders", tmp_path / "missing.csv")
        parquet: Any = pytest.importorskip("pyarrow.parquet", reason="needs: pyarrow")
        arrow: Any = pytest.importorskip("pyarrow", reason="needs: pyarrow")
        parquet.write_table(arrow.table({"id": ["d"]}), tmp_path / "orders.parquet")
        b.load("orders", tmp_path / "orders.parquet", key="id")
        b.load("table", arrow.table({"key": [b"e"], "value": [b"v"]}))
        assert b.topic("orders").records()[-1].key == b"d"
        assert b.topic("table").values() == [b"v"]


def test_consumers_that_wait_get_what_is_loaded(tmp_path: Path) -> None:
    from klog.protocol import ApiKey

    (tmp_path / "orders.jsonl").write_text('{"id": "a"}\n')
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        client.send(ApiKey.FETCH, 4, fetch_request(0, max_wait_ms=60_000))
        wait_for(lambda: b.metrics()["PurgatorySize.Fetch"] >= 1, PATIENCE, lambda: "no fetch waits")
        b.load("orders", tmp_path / "orders.jsonl")
        assert client.receive(ApiKey.FETCH, 4).responses[0].partitions[0].records


def test_a_copy_of_a_brokers_directory(tmp_path: Path) -> None:
    copy_directory(FLIGHTS, tmp_path / "production")
    before = tree(tmp_path / "production")
    with TestBroker(copy_of=tmp_path / "production") as b:
        (topic,) = [name for name in b.logs.topics() if name == "flights"]
        count = len(b.topic(topic).records())
        assert count > 0
        with WireClient(b.bootstrap_servers) as client:
            assert produce(client, b"new", topic) == 0
        assert b.topic(topic).values()[-1] == b"new"
        assert len(b.topic(topic).records()) == count + 1
        copied = b.directory
    assert not os.path.exists(copied)
    assert tree(tmp_path / "production") == before


def test_a_copy_has_the_same_bytes_and_times(tmp_path: Path) -> None:
    source = tmp_path / "from"
    source.mkdir()
    (source / "file").write_bytes(b"a" + bytes(200_000) + b"b" + bytes(100_000))
    (source / "empty").write_bytes(b"")
    (source / ".lock").write_bytes(b"")
    os.utime(source / "file", (1, 1))
    copy_directory(source, tmp_path / "to")
    kept = {name: found for name, found in tree(source).items() if name != ".lock"}
    assert tree(tmp_path / "to") == kept


def _retain(b: TestBroker) -> None:
    assert b.logs.log("orders").apply_retention()


def _compact(b: TestBroker) -> None:
    assert b.logs.log("orders").compact().records_after


def _delete(b: TestBroker) -> None:
    b.logs.delete_topic("orders")


def _create(b: TestBroker) -> None:
    b.create_topic("later").append([(None, b"later")])


@pytest.mark.parametrize("copied", [1, 5, 10])
@pytest.mark.parametrize("change", [_retain, _compact, _delete, _create])
def test_a_copy_of_a_directory_that_changes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[TestBroker], None], copied: int
) -> None:
    """It changes once this many segments have been copied. The copy is as it was before, or afterwards."""
    config = {
        "cleanup.policy": "compact,delete",
        "segment.bytes": 150,
        "retention.bytes": 600,
        "file.delete.delay.ms": 0,
    }
    with TestBroker(topics={"orders": {"config": config}}) as b:
        for n in range(10):
            b.topic("orders").append([(b"%d" % (n % 2), b"%060d" % n)])
        segments = iter(range(1, 1000))

        def copy_file(source: str, target: str, copy: Any = copying._copy_file) -> None:
            copy(source, target)
            if source.endswith(".log") and next(segments) == copied:
                change(b)

        before = b.topic("orders").values()
        with monkeypatch.context() as patched:
            patched.setattr(copying, "_copy_file", copy_file)
            made = TestBroker(copy_of=b.directory)
        with made:
            assert made.logs.topics().keys() == b.logs.topics().keys()
            assert made.topic("later").values() == b.topic("later").values()
            assert made.topic("orders").values() in (before, b.topic("orders").values())


def test_invalid_copies_and_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TestBroker(copy_of=tmp_path / "missing")
    with pytest.raises(ValueError, match="one of the two"):
        TestBroker(copy_of=tmp_path, directory=tmp_path)
    (tmp_path / "orders.jsonl").write_text("{")
    with TestBroker() as b:
        with pytest.raises(KlogError):
            b.load("orders", tmp_path / "orders.jsonl")
        assert b.logs.topics() == {}
