"""Which partitions a query reads, and from which directories."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.errors import UnknownTopicOrPartition
from klog.spark.bounds import TopicPartition
from klog.spark.jobs import log_directory
from klog.spark.options import Subscription
from klog.spark.survey import INTERNAL, absolute_directory, select

PRESENT = [TopicPartition(*pair) for pair in [("b", 10), ("b", 2), ("a", 0), ("__consumer_offsets", 0), ("a-b", 0)]]


def chosen(subscription: Subscription) -> list[str]:
    return [str(pair) for pair in select(subscription, PRESENT)]


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(), ["__consumer_offsets-0", "a-0", "a-b-0", "b-2", "b-10"]),
        (Subscription(topics=("b",)), ["b-2", "b-10"]),
        (Subscription(topics=("b", "a")), ["a-0", "b-2", "b-10"]),
        (Subscription(topics=("__consumer_offsets",)), ["__consumer_offsets-0"]),
        (Subscription(pattern="^a$"), ["a-0"]),
        (Subscription(pattern="b"), ["a-b-0", "b-2", "b-10"]),  # anywhere in the name
        (Subscription(pattern=".*"), ["a-0", "a-b-0", "b-2", "b-10"]),
        (Subscription(pattern="zzz"), []),
        (Subscription(assigned=(TopicPartition("b", 10),)), ["b-10"]),
    ],
)
def test_select(subscription: Subscription, expected: list[str]) -> None:
    assert chosen(subscription) == expected


def test_patterns_do_not_match_kafkas_internal_topics() -> None:
    assert select(Subscription(pattern="__.*"), [TopicPartition(topic, 0) for topic in INTERNAL]) == []


@pytest.mark.parametrize(
    ("subscription", "missing"),
    [
        (Subscription(topics=("a", "c", "d")), "no topic c, d here"),
        (Subscription(assigned=(TopicPartition("a", 0), TopicPartition("a", 1))), "no partition a-1 here"),
    ],
)
def test_named_topics_and_partitions_must_exist(subscription: Subscription, missing: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match=f"{missing}; topics: __consumer_offsets, a, a-b, b"):
        chosen(subscription)


class TestDirectory:
    def test_relative_and_file_uris(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data").mkdir()
        for path in ("data", "./data/", f"{tmp_path}/data", f"file://{tmp_path}/data", f"file:{tmp_path}/data"):
            assert absolute_directory(path) == str(tmp_path / "data")

    def test_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=rf"'data' does not exist .*looked for {tmp_path}/data"):
            absolute_directory("data")

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="is not a directory"):
            absolute_directory(str(tmp_path / "file"))

    @pytest.mark.parametrize("look", [absolute_directory, log_directory])
    def test_one_that_cannot_be_looked_at_is_not_missing(self, tmp_path: Path, look: Callable[[str], str]) -> None:
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        with pytest.raises(OSError, match="loop") as caught:
            look(str(tmp_path / "loop"))
        assert caught.value.errno == errno.ELOOP

    @pytest.mark.parametrize("path", ["s3://bucket/data", "hdfs://n/data"])
    def test_other_stores(self, path: str) -> None:
        with pytest.raises(ValueError, match=r"reads local directories, not (s3|hdfs)://"):
            absolute_directory(path)
