"""Options are parsed from text: every supported form, every ignored option, every refused option."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.spark.bounds import EARLIEST, LATEST, Bound, TopicPartition
from klog.spark.options import SERVED, Options, Reading, parse
from klog.spark.rows import METADATA, NAMES, PLAIN

FEB_8 = 1360299600000  # 2013-02-08T05:00:00Z


def read(**options: str) -> Options:
    return parse({"path": "/data", **options})


def test_path_alone_reads_every_topic_from_earliest_to_latest() -> None:
    options = read()
    assert options.paths == ("/data",)
    assert options.subscription.topics is options.subscription.pattern is options.subscription.assigned is None
    assert (options.start.default, options.end.default) == (EARLIEST, LATEST)
    assert (options.start.option, options.end.option) == (None, None)
    assert (options.no_match, options.columns, options.ignored) == ("error", PLAIN, ())
    assert (options.up_to, options.reading, options.pushdown) == ("highWatermark", Reading(), ())
    assert (options.min_partitions, options.max_records, options.target_split_bytes) == (1, None, None)


def test_options_pickle() -> None:
    options = read(assign='{"t":[0]}', startingOffsets='{"t":{"0":3}}')
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("key", ["includeHeaders", "includeheaders", "INCLUDEHEADERS"])
def test_keys_are_case_insensitive(key: str) -> None:
    assert "headers" in read(**{key: "true"}).columns


class TestPaths:
    def test_load_with_a_list_arrives_as_json(self) -> None:
        assert parse({"paths": '["/a","/b"]'}).paths == ("/a", "/b")

    @pytest.mark.parametrize("given", [{}, {"path": ""}])
    def test_no_path_raises_and_mentions_catalog_tables(self, given: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=r"no path: use \.load.*CREATE TEMPORARY VIEW"):
            parse(given)

    def test_a_catalog_table_raises_and_mentions_views(self) -> None:
        with pytest.raises(ValueError, match=r"no catalog tables.*CREATE TEMPORARY VIEW"):
            parse({"location": "file:/data"})

    def test_both_forms_together_raise(self) -> None:
        with pytest.raises(ValueError, match="'path' and 'paths' are both set"):
            parse({"path": "/a", "paths": '["/b"]'})

    @pytest.mark.parametrize("value", ["", "/a,/b", "[]", '"/a"', "[1]", '[""]', "{}", '{"a":1}', "null"])
    def test_paths_must_be_a_list_of_directories(self, value: str) -> None:
        with pytest.raises(ValueError, match="option 'paths' must be"):
            parse({"paths": value})


class TestSubscription:
    @pytest.mark.parametrize(
        ("value", "topics"),
        [("flights", ("flights",)), (" a , b ", ("a", "b")), ("a,,b,", ("a", "b")), ("b,a,b", ("b", "a"))],
    )
    def test_subscribe(self, value: str, topics: tuple[str, ...]) -> None:
        assert read(subscribe=value).subscription.topics == topics

    @pytest.mark.parametrize("value", ["", " ", ",", " , "])
    def test_subscribe_without_a_name(self, value: str) -> None:
        with pytest.raises(ValueError, match=r"option 'subscribe' .* names no topic"):
            read(subscribe=value)

    def test_pattern(self) -> None:
        assert read(subscribePattern="flights-.*").subscription.pattern == "flights-.*"

    @pytest.mark.parametrize(("value", "why"), [("a(", "not a regular expression"), ("", "is empty")])
    def test_bad_pattern(self, value: str, why: str) -> None:
        with pytest.raises(ValueError, match=f"option 'subscribePattern'.*{why}"):
            read(subscribePattern=value)

    def test_assign(self) -> None:
        assigned = read(assign='{"b":[1,0],"a":[2,2]}').subscription.assigned
        assert assigned == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))

    @pytest.mark.parametrize(
        "value",
        ["", "t", "{}", "[]", "3", '{"t":[]}', '{"t":0}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[true]}', '{"t":[0.5]}'],
    )
    def test_bad_assign(self, value: str) -> None:
        with pytest.raises(ValueError, match="option 'assign' must"):
            read(assign=value)

    @pytest.mark.parametrize(
        "pair", [("subscribe", "assign"), ("subscribe", "subscribePattern"), ("subscribePattern", "assign")]
    )
    def test_two_of_them_exclude_each_other(self, pair: tuple[str, str]) -> None:
        with pytest.raises(ValueError, match=f"'{pair[0]}' and '{pair[1]}' exclude each other"):
            read(**dict.fromkeys(pair, "x"))


class TestOffsets:
    @pytest.mark.parametrize("word", ["earliest", "Earliest", " EARLIEST "])
    def test_earliest(self, word: str) -> None:
        assert read(startingOffsets=word).start.default == EARLIEST

    @pytest.mark.parametrize("word", ["latest", "LATEST", " latest"])
    def test_latest(self, word: str) -> None:
        assert read(endingOffsets=word).end.default == LATEST

    @pytest.mark.parametrize(
        ("option", "word"),
        [("startingOffsets", "latest"), ("endingOffsets", "earliest"), ("endingOffsets", "EARLIEST")],
    )
    def test_the_opposite_word_raises(self, option: str, word: str) -> None:
        with pytest.raises(ValueError, match=f"option '{option}' can't be '{word.lower()}'"):
            read(**{option: word})

    def test_json(self) -> None:
        bounds = read(startingOffsets='{"a":{"0":23,"1":-2},"b":{"7":0}}').start
        assert bounds.by_partition == {
            TopicPartition("a", 0): Bound.at_offset(23),
            TopicPartition("a", 1): EARLIEST,
            TopicPartition("b", 7): Bound.at_offset(0),
        }
        assert bounds.of(TopicPartition("a", 9)) == EARLIEST

    def test_json_of_ending_offsets(self) -> None:
        bounds = read(endingOffsets='{"a":{"0":23,"1":-1}}').end
        assert bounds.by_partition == {TopicPartition("a", 0): Bound.at_offset(23), TopicPartition("a", 1): LATEST}
        assert bounds.of(TopicPartition("a", 9)) == LATEST

    @pytest.mark.parametrize(
        ("option", "number", "word"), [("startingOffsets", -1, "latest"), ("endingOffsets", -2, "earliest")]
    )
    def test_the_opposite_number_raises(self, option: str, number: int, word: str) -> None:
        with pytest.raises(ValueError, match=rf"option '{option}' for a-0 can't be {number} \({word}\)"):
            read(**{option: json.dumps({"a": {"0": number}})})

    @pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
    @pytest.mark.parametrize(
        "value",
        ["", "first", "12", "[]", '{"a":{"0":23}', '{"a":23}', '{"a":{"x":1}}', '{"a":{"-1":1}}', '{"a":{"²":1}}',
         '{"a":{"0":-3}}', '{"a":{"0":"23"}}', '{"a":{"0":"-0"}}', "-0", "-1.5", "-10m", '{"a":{"0":1.0}}', '{"a":{"0":true}}', '{"a":{"0":null}}',
         '{"a":{"0":9223372036854775808}}', '{"a":{"0":' + "9" * 5000 + "}}", '{"a":' * 100_000],
    )  # fmt: skip
    def test_bad_values(self, option: str, value: str) -> None:
        with pytest.raises(ValueError, match=f"option '{option}'"):
            read(**{option: value})

    @given(st.dictionaries(st.text(min_size=1), st.dictionaries(st.integers(0, 99), st.integers(0, 2**63 - 1))))
    def test_any_json_of_offsets_reads_back(self, offsets: dict[str, dict[int, int]]) -> None:
        bounds = read(startingOffsets=json.dumps(offsets)).start
        assert bounds.by_partition == {
            TopicPartition(topic, number): Bound.at_offset(offset)
            for topic, partitions in offsets.items()
            for number, offset in partitions.items()
        }


class TestTimestamps:
    @pytest.mark.parametrize(
        ("value", "ms"),
        [
            ("0", 0),
            (str(FEB_8), FEB_8),
            (f" {FEB_8} ", FEB_8),
            ("2013-02-08T05:00:00Z", FEB_8),
            ("2013-02-08 05:00:00+00:00", FEB_8),
            ("2013-02-08T00:00:00-05:00", FEB_8),
            ("2013-02-08T05:00:00.001Z", FEB_8 + 1),
            ("2013-02-08T05:00:00.000001Z", FEB_8 + 1),  # "at or after" rounds up to the next millisecond
            ("1970-01-01T00:00:00Z", 0),
            ("2013-02-08", FEB_8 - 5 * 3_600_000),
        ],
    )
    @pytest.mark.parametrize("edge", ["starting", "ending"])
    def test_global(self, edge: str, value: str, ms: int) -> None:
        options = read(**{f"{edge}Timestamp": value})
        bounds = options.start if edge == "starting" else options.end
        assert (bounds.default, bounds.by_partition) == (Bound.at_timestamp(ms), {})

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ("-1", "is out of range"),
            ("9" * 30, "is out of range"),
            ("9" * 5000, "is not a time"),
            ("", "is not a time"),
            ("yesterday", "is not a time"),
            ("1.5", "is not a time"),
            ("2013-02-30T00:00:00Z", "is not a time"),
            ("2013-02-08T05:00:00", "has no time zone; add 'Z'"),
            ("1969-12-31T23:59:59Z", "before 1970"),
        ],
    )
    @pytest.mark.parametrize("option", ["startingTimestamp", "endingTimestamp"])
    def test_bad_global(self, option: str, value: str, why: str) -> None:
        with pytest.raises(ValueError, match=f"option '{option}' = .*{why}"):
            read(**{option: value})

    @pytest.mark.parametrize(("edge", "default"), [("starting", EARLIEST), ("ending", LATEST)])
    def test_per_partition(self, edge: str, default: Bound) -> None:
        value = json.dumps({"a": {"0": FEB_8, "1": str(FEB_8), "2": "2013-02-08T05:00:00Z"}})
        options = read(**{f"{edge}OffsetsByTimestamp": value})
        bounds = options.start if edge == "starting" else options.end
        assert bounds.by_partition == {TopicPartition("a", n): Bound.at_timestamp(FEB_8) for n in range(3)}
        assert bounds.of(TopicPartition("a", 3)) == default

    @pytest.mark.parametrize(
        "value", ["", "3", "latest", "[]", '{"a":3}', '{"a":{"0":-1}}', '{"a":{"0":true}}', '{"a":{"0":null}}',
                  '{"a":{"0":1.5}}', '{"a":{"0":[]}}', '{"a":{"0":"soon"}}', '{"a":{"zero":1}}'],
    )  # fmt: skip
    @pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
    def test_bad_per_partition(self, option: str, value: str) -> None:
        with pytest.raises(ValueError, match=f"option '{option}"):
            read(**{option: value})

    @pytest.mark.parametrize(("value", "strategy"), [("error", "error"), ("latest", "latest"), (" LATEST", "latest")])
    def test_strategy(self, value: str, strategy: str) -> None:
        assert read(startingOffsetsByTimestampStrategy=value).no_match == strategy

    def test_bad_strategy(self) -> None:
        with pytest.raises(ValueError, match="'startingOffsetsByTimestampStrategy' must be 'error' or 'latest'"):
            read(startingOffsetsByTimestampStrategy="earliest")


class TestPrecedence:
    """O2. The options without precedence have invalid values: they are not even parsed."""

    @pytest.mark.parametrize("edge", ["starting", "ending"])
    def test_global_timestamp_wins(self, edge: str) -> None:
        options = read(
            **{f"{edge}Timestamp": "5", f"{edge}OffsetsByTimestamp": '{"a":{"0":7}}', f"{edge}Offsets": "nonsense"}
        )
        bounds = options.start if edge == "starting" else options.end
        assert (bounds.default, bounds.by_partition) == (Bound.at_timestamp(5), {})
        assert bounds.option == f"{edge}Timestamp"

    @pytest.mark.parametrize("edge", ["starting", "ending"])
    def test_timestamps_per_partition_win_over_offsets(self, edge: str) -> None:
        options = read(**{f"{edge}OffsetsByTimestamp": '{"a":{"0":7}}', f"{edge}Offsets": "nonsense"})
        bounds = options.start if edge == "starting" else options.end
        assert bounds.by_partition == {TopicPartition("a", 0): Bound.at_timestamp(7)}


@pytest.mark.parametrize(("value", "on"), [("true", True), ("TRUE", True), ("false", False), (" False ", False)])
def test_include_headers(value: str, on: bool) -> None:
    assert ("headers" in read(includeHeaders=value).columns) is on


@pytest.mark.parametrize("value", ["", "1", "yes"])
def test_include_headers_is_true_or_false(value: str) -> None:
    with pytest.raises(ValueError, match="'includeHeaders' must be 'true' or 'false'"):
        read(includeHeaders=value)


class TestNoOptionIsDroppedSilently:
    """O1"""

    def test_options_of_a_kafka_client_are_ignored_and_listed(self) -> None:
        given = {
            "kafka.bootstrap.servers": "h:9092",
            "Kafka.Group.Id": "g",
            "groupIdPrefix": "g",
            "kafkaConsumer.pollTimeoutMs": "1",
            "fetchOffset.numRetries": "3",
        }
        assert read(**given).ignored == tuple(sorted(key.lower() for key in given))

    @pytest.mark.parametrize("name", ["checkpointLocation", "queryName", "outputMode"])
    def test_sparks_own_options_are_not_unknown(self, name: str) -> None:
        assert read(**{name: "/tmp/x"}).ignored == ()

    @pytest.mark.parametrize(
        ("typo", "meant"),
        [
            ("subscribes", "subscribe"),
            ("subscribe_pattern", "subscribePattern"),
            ("startingOffset", "startingOffsets"),
            ("endingTimestamps", "endingTimestamp"),
            ("startOffsets", "startingOffsets"),
            ("includeHeader", "includeHeaders"),
            ("minPartition", "minPartitions"),
            ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
            ("isolation_level", "isolationLevel"),
            ("topic", "subscribe"),
            ("topics", "subscribe"),
            ("pattern", "subscribePattern"),
            ("headers", "includeHeaders"),
            ("checkpoint", "checkpointLocation"),
            ("maxFilesPerTrigger", "maxBytesPerTrigger"),
            ("kafka.isolation_level", "kafka.isolation.level"),  # to ignore it would change rows
            ("bootstrap.servers", "kafka.bootstrap.servers"),
        ],
    )
    def test_a_typo_raises_with_the_nearest_option(self, typo: str, meant: str) -> None:
        with pytest.raises(ValueError, match=f"unknown option '{typo.lower()}'.* Did you mean '{meant}'"):
            read(**{typo: "1"})

    def test_an_unknown_option_raises_with_the_supported_ones(self) -> None:
        with pytest.raises(ValueError, match="unknown option 'delimiter'") as caught:
            read(delimiter=",")
        assert "Did you mean" not in str(caught.value)
        assert all(name in str(caught.value) for name in SERVED)


class TestRelative:
    """Offsets before the end, and times before now."""

    @pytest.mark.parametrize("edge", ["starting", "ending"])
    @pytest.mark.parametrize(("text", "back"), [("-100", 100), ("-1", 1), ("-2", 2), (" -7 ", 7)])
    def test_offsets_before_the_end(self, edge: str, text: str, back: int) -> None:
        """The numbers are text: −1 and −2 without quotes keep Kafka's meaning."""
        for options in (
            read(**{f"{edge}Offsets": text}),
            read(**{f"{edge}Offsets": json.dumps({"a": {"0": text}})}),
        ):
            bounds = options.start if edge == "starting" else options.end
            assert bounds.of(TopicPartition("a", 0)) == Bound("from_end", back)

    def test_a_negative_number_names_the_text_form(self) -> None:
        with pytest.raises(
            ValueError, match='-100 for a-0 is not an offset; 100 offsets before the end are "-100", with'
        ):
            read(startingOffsets='{"a":{"0":-100}}')

    @pytest.mark.parametrize(
        ("text", "ms"),
        [
            ("-10m", 600_000),
            ("-1s", 1000),
            ("-3h", 10_800_000),
            ("-2d", 172_800_000),
            ("-5ms", 5),
            (" - 1W", 604_800_000),
        ],
    )
    @pytest.mark.parametrize("edge", ["starting", "ending"])
    def test_times_before_now(self, edge: str, text: str, ms: int) -> None:
        for options in (
            read(**{f"{edge}Timestamp": text}),
            read(**{f"{edge}OffsetsByTimestamp": json.dumps({"a": {"0": text}})}),
        ):
            bounds = options.start if edge == "starting" else options.end
            assert bounds.of(TopicPartition("a", 0)) == Bound("ago", ms)
            assert bounds.at(10**12).of(TopicPartition("a", 0)) == Bound.at_timestamp(10**12 - ms)

    def test_a_time_before_1970_is_1970(self) -> None:
        assert Bound("ago", 10**15).at(10**12) == Bound.at_timestamp(0)

    @pytest.mark.parametrize("value", ["10m", "-10", "-10y", "-m", "--10m", "-1.5h"])
    def test_bad_times(self, value: str) -> None:
        with pytest.raises(ValueError, match="option 'startingTimestamp' = .*'?-10m"):
            read(startingTimestamp=value)


class TestColumns:
    def test_any_subset_in_any_order(self) -> None:
        assert read(columns="offset, KEY,offset").columns == ("offset", "key")
        assert read(columns=",".join(reversed(NAMES))).columns == tuple(reversed(NAMES))

    def test_headers_and_metadata_are_added(self) -> None:
        assert read(includeHeaders="true").columns == (*PLAIN, "headers")
        assert read(metadataColumns="crcvalid,sequence").columns == (*PLAIN, "crcValid", "sequence")
        assert read(columns="sequence,key", includeHeaders="true", metadataColumns="codec,sequence").columns == (
            "sequence",
            "key",
            "headers",
            "codec",
        )

    @pytest.mark.parametrize(
        ("option", "value", "why"),
        [
            ("columns", "key,ofset", f"'ofset', which is unknown; use some of {', '.join(NAMES)}"),
            ("columns", "", "names nothing; use some of key"),
            ("metadataColumns", "key", f"'key', which is unknown; use some of {', '.join(METADATA)}"),
            ("metadataColumns", ",", "names nothing"),
            ("minPartitions", "0", "must be a whole number from 1 on"),
            ("minPartitions", "100001", "must be at most 100000, not '100001'"),
        ],
    )
    def test_bad_values(self, option: str, value: str, why: str) -> None:
        with pytest.raises(ValueError, match=f"option '{option}' .*{why}"):
            read(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("upTo", "LASTSTABLEOFFSET", {"up_to": "lastStableOffset"}),
        ("upTo", "logEndOffset", {"up_to": "logEndOffset"}),
        ("minPartitions", "7", {"min_partitions": 7}),
        ("maxRecordsPerPartition", " 9 ", {"max_records": 9}),
        ("parallelism", "64", {"parallelism": 64}),
        ("targetSplitBytes", "65536", {"target_split_bytes": 65536}),
        ("targetSplitBytes", "64m", {"target_split_bytes": 64 << 20}),
        ("targetSplitBytes", "2 GiB", {"target_split_bytes": 2 << 30}),
        ("targetSplitBytes", "64kb", {"target_split_bytes": 65536}),
        ("pushdown", "true", {"pushdown": ("filters",)}),
        ("pushdown", "False", {"pushdown": ()}),
        ("pushdown", "limit,filters", {"pushdown": ("limit", "filters")}),
        ("pushdown", "Keys", {"pushdown": ("keys",)}),
        ("isolationLevel", "READ_COMMITTED", {"reading": Reading(committed=True)}),
        ("kafka.isolation.level", "read_committed", {"reading": Reading(committed=True)}),
        ("kafka.isolation.level", "read_uncommitted", {"reading": Reading()}),
        ("onCorrupt", "skipbatch", {"reading": Reading(on_corrupt="skipBatch")}),
        ("onCorrupt", "emit", {"reading": Reading(on_corrupt="emit")}),
        ("failOnDataLoss", "false", {"reading": Reading(fail_on_data_loss=False)}),
        ("verifyCrc", "false", {"reading": Reading(verify_crc=False)}),
        ("metrics", "true", {"reading": Reading(metrics=True)}),
    ],
)
def test_values(option: str, value: str, expected: dict[str, object]) -> None:
    options = read(**{option: value})
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("upTo", "lso", "must be 'highWatermark', 'lastStableOffset' or 'logEndOffset', not 'lso'"),
        ("upTo", "", "must be 'highWatermark'"),
        ("minPartitions", "0", "must be a whole number from 1 on, not '0'"),
        ("minPartitions", "-3", "must be a whole number from 1 on"),
        ("minPartitions", "four", "must be a whole number from 1 on"),
        ("maxRecordsPerPartition", "1.5", "must be a whole number from 1 on"),
        ("maxRecordsPerPartition", "9" * 40, "must be a whole number from 1 on"),
        ("parallelism", "", "must be a whole number from 1 on"),
        ("targetSplitBytes", "0", "must be a number of bytes such as 67108864 or 64m, not '0'"),
        ("targetSplitBytes", "64x", "must be a number of bytes"),
        ("targetSplitBytes", "128", "must be at least 65536 bytes, not '128'; is a unit such as 'm' missing"),
        ("targetSplitBytes", "63k", "must be at least 65536 bytes"),
        ("targetSplitBytes", "-1", "must be a number of bytes"),
        ("pushdown", "yes", "must be 'true', 'false', or some of 'filters', 'keys' and 'limit' with .* not 'yes'"),
        ("isolationLevel", "serializable", "must be 'read_uncommitted' or 'read_committed', not 'serializable'"),
        ("kafka.isolation.level", "1", "must be 'read_uncommitted' or 'read_committed'"),
        ("onCorrupt", "ignore", "must be 'fail', 'skipBatch' or 'emit', not 'ignore'"),
        ("failOnDataLoss", "0", "must be 'true' or 'false', not '0'"),
        ("verifyCrc", "no", "must be 'true' or 'false'"),
        ("metrics", "", "must be 'true' or 'false'"),
    ],
)
def test_a_bad_value_raises_with_the_option_and_the_next_step(option: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"option '{option}' {why}"):
        read(**{option: value})


@pytest.mark.parametrize("number", ["9" * 5000, "00", "01", "-1", "+1", "1_0", "٣", ""])
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsetsByTimestamp"])
def test_a_partition_number_is_as_kafka_writes_it(option: str, number: str) -> None:
    with pytest.raises(ValueError, match=f"option '{option}': '{re.escape(number)}' of topic 't' is not a partition"):
        read(**{option: json.dumps({"t": {"0": 1, number: 2}})})


def test_two_isolation_levels_must_agree() -> None:
    both = {"isolationLevel": "read_committed", "kafka.isolation.level": "read_committed"}
    assert read(**both).reading.committed
    with pytest.raises(ValueError, match="'isolationLevel' and 'kafka.isolation.level' contradict each other"):
        read(**{**both, "kafka.isolation.level": "read_uncommitted"})


def test_every_option_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in SERVED if f"`{name}`" not in text] == []
    assert [name for name in METADATA if f"`{name}`" not in text] == []
