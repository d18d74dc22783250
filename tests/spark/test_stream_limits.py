"""Offsets and limits of streams, without files and without Spark."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.spark.bounds import TopicPartition
from klog.spark.limits import Limits, apportion, next_offsets, too_few
from klog.spark.offsets import from_json, to_json
from klog.spark.resume import Present, resume
from klog.spark.stream_options import checkpoint_directory, commit_group, limits

TOPICS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
PAIRS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(PAIRS, st.integers(0, 2**63 - 1), max_size=8)


def pair(number: int) -> TopicPartition:
    return TopicPartition("t", number)


class TestOffsets:
    def test_the_form_of_the_kafka_source(self) -> None:
        offsets = {TopicPartition("b", 10): 7, TopicPartition("b", 9): 3, TopicPartition("a", 0): 266}
        assert json.dumps(to_json(offsets)) == '{"a": {"0": 266}, "b": {"9": 3, "10": 7}}'
        assert to_json({}) == {}

    @given(OFFSETS, st.randoms())
    def test_one_text_for_the_same_offsets(self, offsets: dict[TopicPartition, int], random: object) -> None:
        shuffled = list(offsets.items())
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        text = json.dumps(to_json(offsets))
        assert json.dumps(to_json(dict(shuffled))) == text
        assert json.dumps(to_json(from_json(json.loads(text)))) == text
        assert from_json(json.loads(text)) == offsets

    @pytest.mark.parametrize(
        "document",
        ["", None, 3, [], [1], {"t": 3}, {"t": [0]}, {"t": {"x": 1}}, {"t": {"-1": 1}}, {"t": {"0": -1}},
         {"t": {"0": "1"}}, {"t": {"0": 1.5}}, {"t": {"0": True}}, {"t": {"0": 2**63}}, {"logOffset": 3}],
    )  # fmt: skip
    def test_offsets_of_another_source(self, document: object) -> None:
        with pytest.raises(ValueError, match="checkpoint of another source; give the query its own checkpointLocation"):
            from_json(document)


BACKLOGS = st.lists(st.one_of(st.just(0), st.integers(0, 20), st.integers(0, 2**62)), max_size=12)


class TestShares:
    @given(BACKLOGS, st.integers(1, 2**63 - 1) | st.integers(1, 30), st.integers(0, 2**70))
    def test_shares(self, backlogs: list[int], limit: int, rotation: int) -> None:
        shares = apportion(backlogs, limit, rotation)
        assert sum(shares) == min(limit, sum(backlogs))
        assert all(0 <= share <= backlog for share, backlog in zip(shares, backlogs, strict=True))
        waiting = [share for share, backlog in zip(shares, backlogs, strict=True) if backlog]
        if limit >= len(waiting):
            assert all(waiting)

    @given(st.lists(st.integers(0, 2**40), min_size=1, max_size=12), st.integers(1, 2**42), st.integers(0, 99))
    def test_in_proportion(self, backlogs: list[int], limit: int, rotation: int) -> None:
        shares = apportion(backlogs, limit, rotation)
        waiting = sum(1 for backlog in backlogs if backlog)
        if waiting <= limit < sum(backlogs):
            for share, backlog in zip(shares, backlogs, strict=True):
                # The difference is the one offset that each partition always gets, and rounding.
                assert abs(share - limit * backlog / sum(backlogs)) <= waiting + 1

    def test_examples(self) -> None:
        assert apportion([1000, 500], 400, 0) == [266, 134]
        assert apportion([1000, 0, 1], 2, 0) == [1, 0, 1]
        assert apportion([], 5, 0) == []

    def test_partitions_alternate_if_the_limit_is_below_their_number(self) -> None:
        """The first partition always has a large backlog. The others are read too."""
        start = {pair(0): 0, pair(1): 0, pair(2): 0}
        end = {pair(0): 10**9, pair(1): 3, pair(2): 3}
        for _ in range(12):
            start = next_offsets(start, end, Limits(max_offsets=1), Batches({}))
        assert start == {pair(0): 6, pair(1): 3, pair(2): 3}


class Batches:
    """A model of limits.Stored: for each partition the record batches as (base offset, next offset, size)."""

    def __init__(self, batches: Mapping[TopicPartition, list[tuple[int, int, int]]]) -> None:
        self.batches = batches

    def size(self, pair: TopicPartition, start: int, end: int) -> int:
        return sum(size for base, after, size in self.batches[pair] if base < end and after > start)

    def fit(self, pair: TopicPartition, start: int, end: int, size: int) -> int:
        ends = range(start + 1, end + 1)
        return start + bisect_right(ends, size, key=lambda last: self.size(pair, start, last))


@st.composite
def stored(draw: st.DrawFn) -> tuple[Batches, dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Draw partitions of batches with gaps between them, and their start and end offsets."""
    batches, start, end = {}, {}, {}
    for number in range(draw(st.integers(1, 5))):
        base = first = draw(st.integers(0, 2**40))
        found = []
        for _ in range(draw(st.integers(0, 6))):
            base += draw(st.sampled_from([0, 0, 0, 1, 5]))
            after = base + draw(st.integers(1, 8))
            found.append((base, after, draw(st.integers(61, 300))))
            base = after
        batches[pair(number)] = found
        start[pair(number)], end[pair(number)] = first, base + draw(st.sampled_from([0, 0, 2]))
    return Batches(batches), start, end


LIMITS = st.builds(
    Limits,
    max_offsets=st.none() | st.integers(1, 40),
    max_bytes=st.none() | st.integers(1, 1500),
)


class TestBatches:
    @given(stored(), LIMITS)
    def test_a_stream_reads_all_once_within_the_limits(
        self, case: tuple[Batches, dict[TopicPartition, int], dict[TopicPartition, int]], limits: Limits
    ) -> None:
        model, start, end = case
        while start != end:
            reached = next_offsets(start, end, limits, model)
            assert reached.keys() == end.keys()
            assert all(start[one] <= reached[one] <= end[one] for one in end)  # L1
            count = sum(reached.values()) - sum(start.values())
            assert count > 0  # L3
            if limits.max_offsets is not None:  # L2
                assert count <= limits.max_offsets
            if limits.max_bytes is not None:
                sizes = [model.size(one, start[one], reached[one]) for one in end if start[one] < reached[one]]
                alone = sum(1 for one in end for base, after, _ in model.batches[one]
                            if base < reached[one] and after > start[one] and start[one] < reached[one]) <= 1  # fmt: skip
                assert sum(sizes) <= limits.max_bytes or alone
            start = reached

    def test_without_limits_all_is_read(self) -> None:
        assert next_offsets({pair(0): 3}, {pair(0): 9}, Limits(), Batches({})) == {pair(0): 9}

    def test_small_partitions_get_what_the_others_leave(self) -> None:
        """The share of the second is less than its only record batch."""
        model = Batches({pair(0): [(n, n + 1, 100) for n in range(1000)], pair(1): [(0, 1, 60)]})
        reached = next_offsets({pair(0): 0, pair(1): 0}, {pair(0): 1000, pair(1): 1}, Limits(max_bytes=1070), model)
        assert reached == {pair(0): 10, pair(1): 1}


@pytest.mark.parametrize(
    ("backlog", "waited_ms", "waits"),
    [(9, None, False), (9, 0.0, True), (9, 999.0, True), (9, 1000.0, False), (10, 0.0, False), (0, 1.0, True)],
)
def test_a_trigger_waits_for_enough_offsets(backlog: int, waited_ms: float | None, waits: bool) -> None:
    assert too_few(backlog, Limits(min_offsets=10, max_delay_ms=1000), waited_ms) is waits
    assert not too_few(backlog, Limits(), waited_ms)


class TestOptions:
    @pytest.mark.parametrize(
        ("value", "milliseconds"),
        [("15m", 900_000), ("30s", 30_000), ("1h", 3_600_000), ("2d", 172_800_000), ("250ms", 250), ("250", 250),
         (" 5 min ", 300_000), ("1H", 3_600_000), ("2999us", 2)],
    )  # fmt: skip
    def test_delays(self, value: str, milliseconds: int) -> None:
        assert limits({"maxtriggerdelay": value}).max_delay_ms == milliseconds

    def test_the_default_delay_is_that_of_spark(self) -> None:
        assert limits({}) == Limits(None, None, None, 15 * 60 * 1000)

    @pytest.mark.parametrize("value", ["", "m", "-1m", "1.5m", "15 weeks", "1e3"])
    def test_bad_delays(self, value: str) -> None:
        with pytest.raises(ValueError, match="'maxTriggerDelay' must be a time such as '30s'"):
            limits({"maxtriggerdelay": value})

    @pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
    @pytest.mark.parametrize("value", ["0", "-1", "", "x", "1.5", "٣", str(2**63)])
    def test_bad_numbers(self, option: str, value: str) -> None:
        with pytest.raises(ValueError, match=f"option '{option}' must be a whole number from 1"):
            limits({option.lower(): value})

    def test_a_minimum_above_the_maximum(self) -> None:
        with pytest.raises(ValueError, match="'minOffsetsPerTrigger' = 9 is above 'maxOffsetsPerTrigger' = 5; lower"):
            limits({"minoffsetspertrigger": "9", "maxoffsetspertrigger": "5"})

    @pytest.mark.parametrize(
        ("location", "directory"),
        [("/a/b", "/a/b"), ("a b", "a b"), ("file:/a", "/a"), ("file:///a%20b", "/a%20b"), ("file://host/a", "/a"),
         ("hdfs://host/a", None), ("s3a://bucket/a", None), ("", None)],
    )  # fmt: skip
    def test_the_checkpoint(self, location: str, directory: str | None) -> None:
        assert checkpoint_directory({"checkpointlocation": location}) == directory

    @pytest.mark.parametrize("name", ["", "x" * 32_768, "\ud800"])
    def test_bad_groups(self, name: str) -> None:
        with pytest.raises(ValueError, match="is not a group name"):
            commit_group({"commitgroup": name})


def present(start: int, end: int, topic_id: str | None = "A") -> dict[TopicPartition, Present]:
    return {pair(0): Present("/d/t-0", start, end, end, topic_id)}


class TestLosses:
    @pytest.mark.parametrize(
        ("wanted", "found", "known", "reason", "goes_on"),
        [
            (
                5,
                {},
                "A",
                "the stream is at offset 5, but the partition is gone: its topic was deleted, moved to a log.dir not in",
                None,
            ),
            (5, present(0, 90, "B"), "A", r"/d/t-0 holds \[0, 90\): .*created again \(its id was A, now it is B\)", 0),
            (5, present(7, 90), "A", r"holds \[7, 90\): retention or a delete has removed \[5, 7\)", 7),
            (95, present(7, 90), "A", r"holds \[7, 90\): the log was truncated, or its topic deleted and", 90),
            (95, present(7, 90, None), None, "the log was truncated", 90),
        ],
    )
    def test_each_is_explained(
        self,
        wanted: int,
        found: dict[TopicPartition, Present],
        known: str | None,
        reason: str,
        goes_on: int | None,
    ) -> None:
        positions, (loss,) = resume({pair(0): wanted}, found, {"t": known} if known else {}, {})
        assert loss.goes_on == goes_on
        assert positions == ({} if goes_on is None else {pair(0): goes_on})
        with pytest.raises(AssertionError, match=f"^t-0: .*{reason}"):
            raise AssertionError(str(loss))

    @pytest.mark.parametrize("wanted", [7, 8, 90])
    def test_an_offset_in_the_log_is_not_a_loss(self, wanted: int) -> None:
        for known in ({"t": "A"}, {}, {"other": "B"}):
            assert resume({pair(0): wanted}, present(7, 90), known, {}) == ({pair(0): wanted}, [])

    def test_a_new_partition_begins_at_its_log_start(self) -> None:
        assert resume({}, present(7, 90), {"t": "A"}, {}) == ({pair(0): 7}, [])
