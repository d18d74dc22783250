"""Streams over topics to which anything may happen, against a model: no record is read twice, and none is left out."""

from __future__ import annotations

import itertools
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

import klog
from klog.spark.bounds import DataLoss
from klog.spark.rows import full_schema
from klog.spark.source import KlogSource

TOPICS = ("a", "b")
SCHEMA = StructType([full_schema()["value"]])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(TOPICS), st.integers(1, 6)),
        st.tuples(st.just("append"), st.sampled_from(TOPICS), st.integers(1, 6)),
        st.tuples(st.just("batch"), st.sampled_from(["done", "done", "repeat", "repeat later"]), st.integers(1, 8)),
        st.tuples(st.just("drain"), st.just(""), st.just(0)),
        st.tuples(st.just("drain"), st.just(""), st.just(0)),
        st.tuples(st.just("delete"), st.sampled_from(TOPICS), st.integers(1, 8)),
        st.tuples(st.just("recreate"), st.sampled_from(TOPICS), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from(TOPICS), st.just(0)),
        st.tuples(st.just("away"), st.sampled_from(TOPICS), st.just(0)),
        st.tuples(st.just("back"), st.sampled_from(TOPICS), st.just(0)),
        st.tuples(st.just("truncate"), st.sampled_from(TOPICS), st.integers(1, 8)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    min_size=4,
    max_size=25,
)


class Topics:
    """A log.dir with some topics of a partition each. Each record's value is a number that no other one has."""

    def __init__(self, home: Path) -> None:
        self.path, self._aside = home / "data", home / "aside"
        self._numbers = itertools.count()
        klog.open(self.path, create=True).close()
        self._aside.mkdir()

    def values(self, topic: str) -> set[int]:
        """What a topic has now."""
        with klog.open(self.path, read_only=True) as logs:
            return {int(record.value or b"") for record in logs.log(topic).read()} if topic in logs.topics() else set()

    def change(self, what: str, topic: str, count: int) -> None:
        home, aside = self.path / f"{topic}-0", self._aside / f"{topic}-0"
        if what == "away" and home.exists():
            shutil.rmtree(aside, ignore_errors=True)
            home.rename(aside)
            return
        if what == "back" and aside.exists() and not home.exists():
            aside.rename(home)
            return
        with klog.open(self.path) as logs:
            there = topic in logs.topics()
            if what in ("recreate", "drop") and there:
                logs.delete_topic(topic)
                there = False
            if what == "recreate" or (what == "append" and not there and not aside.exists()):
                shutil.rmtree(aside, ignore_errors=True)
                logs.create_topic(topic)
                there = True
            if not there:
                return
            log = logs.log(topic)
            if what == "truncate":  # by a later leader
                log.truncate_to(max(log.log_end_offset - count, log.log_start_offset))
                log.begin_leader_epoch(log.leader_epoch + 1)
                log.append([(b"k", b"%d" % next(self._numbers))])
            elif what == "append":
                for _ in range(count):
                    log.append([(b"k", b"%d" % next(self._numbers))])
            elif what == "delete":
                log.delete_records(min(log.log_start_offset + count, log.log_end_offset))


class Stream:
    """A query, with Spark's checkpoint in `at` and `seen`: the end of the last batch, and the rows of all batches."""

    def __init__(self, topics: Topics, home: Path, fail: bool = False) -> None:
        self._topics, self._checkpoint, self._fail = topics, str(home / "checkpoint"), fail
        self.seen: Counter[int] = Counter()
        self.start()
        self.at = self._reader.initialOffset()
        self._reader.latestOffset(self.at, self._reader.getDefaultReadLimit())

    def start(self) -> None:
        options = {"startingOffsets": "earliest", "checkpointLocation": self._checkpoint}
        given = {"path": str(self._topics.path), "failOnDataLoss": str(self._fail).lower(), **options}
        self._reader: Any = KlogSource(given).streamReader(SCHEMA)

    def end(self, limit: int) -> Any:
        return self._reader.latestOffset(self.at, ReadMaxRows(limit))

    def rows(self, end: Any) -> Counter[int]:
        parts, task = pickle.loads(pickle.dumps((self._reader.partitions(self.at, end), self._reader)))
        values = [row["value"] for part in parts for batch in task.read(part) for row in batch.to_pylist()]
        return Counter(map(int, values))

    def done(self, end: Any, rows: Counter[int]) -> None:
        self.seen += rows
        self.at = end

    def drain(self) -> None:
        """Run all batches that there are."""
        while (end := self.end(5)) != self.at:
            self.done(end, self.rows(end))


@given(STEPS)
def test_a_stream_that_goes_on_after_losses_reads_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    home = tmp_path_factory.mktemp("model")
    topics = Topics(home)
    stream = Stream(topics, home)
    waiting = None  # the end of a batch that has failed
    for what, which, count in [*steps, ("drain", "", 0)]:
        if what == "restart":
            stream.start()
        elif what == "drain":
            if waiting is not None:
                stream.done(waiting, stream.rows(waiting))
                waiting = None
            stream.drain()
        elif what != "batch":
            topics.change(what, which, count)
        else:
            end = waiting or stream.end(count)
            waiting = None
            rows = stream.rows(end)
            if which == "repeat":
                stream.start()
                assert stream.rows(end) == rows
            if which == "repeat later":
                stream.start()
                waiting = end
            else:
                stream.done(end, rows)
    assert max(stream.seen.values(), default=1) == 1
    for topic in TOPICS:
        assert topics.values(topic) <= stream.seen.keys()
    shutil.rmtree(home)


@given(STEPS)
def test_a_stream_that_stops_at_losses_loses_nothing_silently(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    """It fails if records were deleted that it had still to read, and only if something was deleted or truncated, or is
    away."""
    home = tmp_path_factory.mktemp("model")
    topics = Topics(home)
    stream = Stream(topics, home, fail=True)
    must_fail = may_fail = False
    try:
        for what, which, count in [*steps, ("drain", "", 0)]:
            if what == "restart":
                stream.start()
            elif what == "drain":
                stream.drain()
            elif what == "batch":
                end = stream.end(count)
                stream.done(end, stream.rows(end))
            else:
                before = topics.values(which)
                topics.change(what, which, count)
                removed = before - topics.values(which)
                known = which in stream.at
                unread = removed - stream.seen.keys()
                must_fail |= known and what in ("delete", "recreate", "drop") and bool(unread)
                may_fail |= known and (bool(unread) or what in ("recreate", "drop", "away", "truncate"))
    except DataLoss:
        assert may_fail
    else:
        assert not must_fail
        assert max(stream.seen.values(), default=1) == 1
        for topic in TOPICS:
            assert topics.values(topic) <= stream.seen.keys()
    shutil.rmtree(home)
