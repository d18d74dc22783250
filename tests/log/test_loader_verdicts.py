"""klog loads damaged directories as Kafka's own loader does, or better; the table below lists the differences.

tests/golden/loader.tar.xz has 187 directories, each with the result of Kafka 4.1.0 ("verdict"). With `recovery="kafka"`
klog's result is the same, with two exceptions: klog may keep more records than Kafka, and may load a directory that
Kafka refuses. `BETTER` is the complete list of differences. In nearly all of them klog's result equals Kafka's result
for a similar directory ("the same damage, but unclean" or "no damage at all"), which the table names.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, InconsistentTopicId
from klog.segment import find_by_time
from tests.support import golden


@dataclasses.dataclass(frozen=True)
class Better:
    """klog's result is Kafka's verdict for the case `like` (default: the case itself), with `fields` replaced.

    records: the case whose records are read, if another one.
    """

    reason: str
    like: str | None = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    records: str | None = None


WHOLE_EPOCHS = {"leader_epochs": [[0, 0], [1, 47], [3, 106], [4, 154]]}
SPLIT_ABORTED = {
    "aborted": [
        {"producer_id": 7002, "first_offset": 71, "last_offset": 105, "last_stable_offset": 94},
        {"producer_id": 7001, "first_offset": 131, "last_offset": 183, "last_stable_offset": 140},
    ]
}
OVERFLOW_EPOCHS = {"leader_epochs": [[0, 0], [1, 16], [2, 3000000011], [3, 3000000028]]}

TORN = "torn bytes after the last whole batch are cut on a clean open too"
RESCAN = "the log end comes from the batches, not from an index entry without a batch"
NO_REFUSAL = "Kafka refuses the directory; klog cuts a tail that cannot be a batch"
LEARNED = "epochs come from the batch headers when the checkpoint lacks them"
WRONG_BIT = "an epoch that one batch alone has, one bit away from the checkpoint's, is not taken over"
CONTRADICTED = "epochs that the batches contradict are replaced by those of the batches"
LEADERS = "a log whose segments are all deleted keeps its last epoch"
MARKERS = "the transaction index is rebuilt from the markers"
MENDED = "readers get the offsets that the neighbouring batches leave free, the file is not changed"
SWAP = "a .swap is checked before it replaces anything; this one is dropped"

BETTER: dict[str, Better] = {
    # The log end of a clean open.
    "cut-mid-length-clean": Better(TORN, like="cut-mid-length-unclean"),
    "cut-mid-header-clean": Better(TORN, like="cut-mid-header-unclean"),
    "cut-mid-records-clean": Better(TORN, like="cut-mid-records-unclean"),
    "cut-half-segment-clean": Better(RESCAN, like="cut-half-segment-unclean"),
    "index-beyond-active-clean": Better(RESCAN, like="none-clean"),
    "active-log-zero-clean": Better(
        "an aborted transaction whose records are gone is not listed", like="active-log-zero-unclean"
    ),
    "garbage-tail-clean": Better(NO_REFUSAL, like="none-clean"),
    "zero-tail-1k-clean": Better(NO_REFUSAL, like="none-clean"),
    "length-negative-clean": Better(NO_REFUSAL, like="length-negative-unclean"),
    "fuzz-04-clean": Better(TORN, like="fuzz-04-unclean"),
    "fuzz-05-clean": Better(RESCAN, like="fuzz-09-clean"),
    "fuzz-13-clean": Better(
        "the flipped batch at 172 is kept and its readers raise, the torn bytes after it are cut",
        fields={
            "log_end_offset": 177,
            "segments": [
                {"base_offset": 0, "size": 4132},
                {"base_offset": 47, "size": 4038},
                {"base_offset": 91, "size": 3861},
                {"base_offset": 131, "size": 3907},
                {"base_offset": 172, "size": 447},
            ],
            "aborted": [{"producer_id": 7002, "first_offset": 71, "last_offset": 105, "last_stable_offset": 94}],
            "read_error": True,
        },
    ),
    "fuzz-14-clean": Better(NO_REFUSAL, like="flip-first-body-of-active-clean"),
    # Offsets that go back.
    "batch-repeated-clean": Better("cut before the first batch whose offsets go back", like="none-clean"),
    "batch-repeated-unclean": Better("cut before the first batch whose offsets go back", like="none-unclean"),
    "base-offset-below-segment-clean": Better(
        "kept up to the batch whose offsets go back", like="cut-boundary-unclean"
    ),
    "base-offset-below-segment-unclean": Better(
        "kept up to the batch whose offsets go back", like="cut-boundary-unclean"
    ),
    # A flipped bit makes a base offset, which no checksum covers, much larger: the next batch shows the correct one.
    "fuzz-06-clean": Better(MENDED, fields={"read_error": None}, records="none-clean"),
    "fuzz-08-clean": Better(MENDED, records="none-clean"),
    "fuzz-08-unclean": Better(MENDED, like="fuzz-08-clean", records="none-clean"),
    # Leader epochs.
    "epochs-not-monotonic-clean": Better(CONTRADICTED, fields=WHOLE_EPOCHS),
    "epochs-not-monotonic-unclean": Better(CONTRADICTED, fields=WHOLE_EPOCHS),
    "epochs-missing-clean": Better(LEARNED, fields=WHOLE_EPOCHS),
    "epochs-missing-unclean": Better(LEARNED, fields=WHOLE_EPOCHS),
    "epochs-corrupt-clean": Better(LEARNED, like="none-clean"),
    "fuzz-02-clean": Better(LEARNED, like="none-clean"),
    "fuzz-11-unclean": Better(LEARNED, like="none-unclean"),
    "offset-overflow-clean": Better(LEARNED, fields=OVERFLOW_EPOCHS),
    "epochs-corrupt-unclean": Better(LEARNED, like="none-unclean"),
    "flip-leader-epoch-field-unclean": Better(WRONG_BIT, fields=WHOLE_EPOCHS),
    "leader-epoch-new-tail-clean": Better(LEARNED, like="leader-epoch-new-tail-unclean"),
    "lso-past-end-clean": Better(LEADERS, fields={"leader_epochs": [[4, 282]]}),
    "lso-past-end-unclean": Better(LEADERS, fields={"leader_epochs": [[4, 282]]}),
    # Transactions and producers.
    "abort-open-txn-tail-clean": Better(MARKERS, like="abort-open-txn-tail-unclean"),
    "txnindex-missing-clean": Better(MARKERS, like="none-clean"),
    "txnindex-missing-unclean": Better(MARKERS, like="none-unclean"),
    "txnindex-version-256-clean": Better(MARKERS, like="none-clean"),
    "txnindex-version-256-unclean": Better(MARKERS, like="none-unclean"),
    "snapshot-all-missing-clean": Better("producers are rebuilt from the log", like="snapshot-all-missing-unclean"),
    # Files left by a replacement.
    "swap-empty-clean": Better(SWAP, like="none-clean"),
    "swap-empty-unclean": Better(SWAP, like="none-unclean"),
    "swap-corrupt-tail-clean": Better(SWAP, like="none-clean"),
    "swap-corrupt-tail-unclean": Better(SWAP, like="none-unclean"),
    "swap-split-incomplete-clean": Better("an incomplete split is dropped: the original stays", like="none-clean"),
    "swap-split-incomplete-unclean": Better("an incomplete split is dropped: the original stays", like="none-unclean"),
    "swap-split-clean": Better(MARKERS, fields=SPLIT_ABORTED),
    "swap-split-unclean": Better(MARKERS, fields=SPLIT_ABORTED),
    # Other files.
    "metadata-empty-clean": Better("an empty partition.metadata counts as missing", like="metadata-missing-clean"),
    "metadata-empty-unclean": Better("an empty partition.metadata counts as missing", like="metadata-missing-unclean"),
    "foreign-log-name-clean": Better("abc.log is not a segment; it is ignored", like="none-clean"),
    "foreign-log-name-unclean": Better("abc.log is not a segment; it is ignored", like="none-unclean"),
}

OTHER_TOPIC = {"metadata-other-id-clean", "metadata-other-id-unclean"}

NAMES = golden.loader_names()


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


def open_case(case: golden.LoaderCase, directory: Path, **options: Any) -> klog.Log:
    given = case.config
    return klog.Log.open(
        directory,
        config={**given["config"], "producer.id.expiration.ms": given["producer_id_expiration_ms"]},
        recovery="kafka",
        clean_shutdown=given["clean_shutdown"],
        recovery_point=given["recovery_point"],
        log_start_offset=given["log_start_offset"],
        topic_id=given["topic_id"],
        clock=ManualClock(given["now_ms"]),
        **options,
    )


def read_all(log: klog.Log) -> tuple[list[golden.GoldenRecord], str | None]:
    """Records up to the first error, and the error's class."""
    got: list[golden.GoldenRecord] = []
    try:
        for record in log.read(include_control=True, isolation="log_end"):
            got.append(golden.record_tuple(record))
    except CorruptBatch as error:
        return got, type(error).__name__
    return got, None


def compare(
    log: klog.Log, case: golden.LoaderCase, cases: dict[str, golden.LoaderCase], *, reopened: bool = False
) -> None:
    better = BETTER.get(case.name, Better(""))
    model = cases[better.like or case.name]
    expected = {**model.verdict, **better.fields}
    differences = golden.Differences(f"{case.name} (expected as {model.name})")
    equal = differences.equal
    start, end = expected["log_start_offset"], expected["log_end_offset"]
    if not reopened:
        given = max(case.config["recovery_point"] or 0, min(start, end))
        equal("recovery_point", log.recovery_point, end if case.config["clean_shutdown"] else min(given, end))
        if not better.reason:
            equal("recovery_point", log.recovery_point, expected["recovery_point"])
    equal("log_start_offset", log.log_start_offset, start)
    equal("log_end_offset", log.log_end_offset, end)
    equal("high_watermark", log.high_watermark, end)
    got_segments = [(segment.base_offset, segment.size) for segment in log.segments]
    equal("segments", got_segments, [(item["base_offset"], item["size"]) for item in expected["segments"]])
    equal("leader_epochs", [list(item) for item in log.leader_epochs], expected["leader_epochs"])
    equal("producers", golden.producer_tuples(log), golden.expected_producers(expected["producers"]))
    got_aborted = [tuple(item) for item in log.aborted_transactions(start, end)]
    equal("aborted", got_aborted, golden.expected_aborted(expected["aborted"], start, end))
    equal("topic_id", golden.topic_id_text(log.topic_id), case.config["topic_id"])
    undecided = expected["first_undecided_offset"]
    equal("last_stable_offset", log.last_stable_offset, end if undecided is None else max(undecided, start))
    got_records, error = read_all(log)
    differences.equal_lists("records", got_records, cases[better.records or model.name].records)
    equal("error while reading", error, "CorruptBatch" if expected["read_error"] else None)
    differences.report()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHER_TOPIC])
def test_verdict(name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path) -> None:
    case = cases[name]
    log = open_case(case, case.copy(tmp_path))
    try:
        compare(log, case, cases)
    finally:
        log.close()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHER_TOPIC])
def test_the_result_of_a_load_survives_a_clean_reopen(
    name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    case = cases[name]
    directory = case.copy(tmp_path)
    open_case(case, directory).close()
    log = klog.Log.open(
        directory,
        config={**case.config["config"], "producer.id.expiration.ms": case.config["producer_id_expiration_ms"]},
        recovery="kafka",
        clean_shutdown=True,
        log_start_offset=case.config["log_start_offset"],
        clock=ManualClock(case.config["now_ms"]),
    )
    try:
        assert log.recovery.bytes_truncated == 0
        compare(log, case, cases, reopened=True)
    finally:
        log.close()


@pytest.mark.parametrize("name", sorted(OTHER_TOPIC))
def test_a_directory_of_another_topic_is_refused_unchanged(
    name: str, cases: dict[str, golden.LoaderCase], tmp_path: Path
) -> None:
    """Kafka refuses as well, but only after loading has changed the files."""
    directory = cases[name].copy(tmp_path)
    before = golden.file_tree(directory)
    with pytest.raises(InconsistentTopicId):
        open_case(cases[name], directory)
    assert golden.file_tree(directory) == before


def test_the_table_names_only_cases_that_exist_and_differ(cases: dict[str, golden.LoaderCase]) -> None:
    """An entry for which Kafka has the same result is a leftover."""
    for name, better in BETTER.items():
        verdict = cases[name].verdict
        if not verdict["ok"]:
            continue
        expected = {**cases[better.like or name].verdict, **better.fields}
        same = all(
            expected[field] == verdict[field] for field in ("log_end_offset", "leader_epochs", "producers", "aborted")
        ) and [item["size"] for item in expected["segments"]] == [item["size"] for item in verdict["segments"]]
        assert not same or cases[better.records or better.like or name].records != cases[name].records, name


def test_never_fewer_records_than_kafka(cases: dict[str, golden.LoaderCase]) -> None:
    """Guards the table itself: no entry may expect fewer records than Kafka keeps."""
    for name, better in BETTER.items():
        kafka = cases[name].records
        klogs = cases[better.records or better.like or name].records
        if better.reason == MENDED:
            assert len(kafka) <= len(klogs), name
        else:
            assert {record.offset for record in kafka} <= {record.offset for record in klogs}, name


def test_the_page_of_deviations_matches_the_table() -> None:
    """docs/deviations.md: each reason once, with exactly its cases."""
    text = (Path(__file__).parents[2] / "docs" / "deviations.md").read_text()
    listed = {}
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("**"):
            reason, rest = paragraph[2:].split("**\n", 1)
            assert reason not in listed
            listed[reason] = set(re.findall(r"`([^`]+)`", rest.partition("Cases: ")[2]))
    by_reason: dict[str, set[str]] = {}
    for name, better in BETTER.items():
        by_reason.setdefault(better.reason, set()).add(name)
    assert listed == by_reason


@pytest.fixture
def lookup(cases: dict[str, golden.LoaderCase], tmp_path: Path) -> Iterator[tuple[klog.Log, Mapping[str, Any]]]:
    """The log for which Kafka recorded 200 results of each kind of lookup."""
    case = cases["lookup"]
    log = open_case(case, case.copy(tmp_path))
    yield log, case.lookup
    log.close()


Results = list[tuple[Any, Any, Any]]  # query, klog's result, Kafka's


def check(results: Results) -> None:
    assert len(results) == 200
    differences = golden.Differences("lookup")
    for query, got, expected in results:
        differences.equal(str(query), got, expected)
    differences.report()


def test_offset_index_lookups(lookup: tuple[klog.Log, Mapping[str, Any]]) -> None:
    """OI1: OffsetIndex.lookup, the greatest entry at or below an offset, (base, 0) below the first."""
    log, recorded = lookup
    segments = {segment.base_offset: segment for segment in log.segments}
    check([((b, o), segments[b].index.floor(o), tuple(answer)) for b, o, answer in recorded["offset_index_lookup"]])


def test_time_index_lookups(lookup: tuple[klog.Log, Mapping[str, Any]]) -> None:
    """TI1: TimeIndex.lookup, the greatest entry at or below a timestamp, (-1, base) below the first."""
    log, recorded = lookup
    segments = {segment.base_offset: segment for segment in log.segments}
    check([((b, t), segments[b].index.time_floor(t), tuple(answer)) for b, t, answer in recorded["time_index_lookup"]])


def test_translated_offsets(lookup: tuple[klog.Log, Mapping[str, Any]]) -> None:
    """LS2: LogSegment.translateOffset, the first batch that reaches an offset, none after the last."""
    log, recorded = lookup
    segments = {segment.base_offset: segment for segment in log.segments}
    results: Results = []
    for base, offset, answer in recorded["translate_offset"]:
        header = segments[base].locate(offset)
        got = None if header is None else [header.base_offset, header.position, header.size]
        results.append(((base, offset), got, answer))
    check(results)


def test_offsets_by_time_in_one_segment(
    cases: dict[str, golden.LoaderCase], lookup: tuple[klog.Log, Mapping[str, Any]]
) -> None:
    """LS8: LogSegment.findOffsetByTimestamp from an offset on, with the epoch of the record found."""
    log, recorded = lookup
    segments = {segment.base_offset: segment for segment in log.segments}
    results: Results = []
    for base, timestamp, start, answer in recorded["find_offset_by_timestamp"]:
        found = find_by_time(segments[base], timestamp, start)
        results.append(((base, timestamp, start), found and [*found], answer))
    check(results)


def test_offsets_by_time(lookup: tuple[klog.Log, Mapping[str, Any]]) -> None:
    """UnifiedLog.fetchOffsetByTimestamp: the first record of the log at or above a time, and the named offsets."""
    log, recorded = lookup
    results: Results = []
    for timestamp, answer in recorded["fetch_offset_by_timestamp"]:
        found = log.list_offset(timestamp)
        results.append((timestamp, found and list(found), answer))
        exact = log.offset_for_timestamp(timestamp)
        assert (exact and list(exact)) == (answer and answer[:2])
    check(results)
    for number, answer in recorded["special_timestamps"].items():
        assert list(log.list_offset(int(number)) or ()) == answer, number


def test_a_fetch_begins_at_the_translated_position(lookup: tuple[klog.Log, Mapping[str, Any]]) -> None:
    log, recorded = lookup
    segments = {segment.base_offset: segment for segment in log.segments}
    for base, offset, answer in recorded["translate_offset"]:
        if answer is not None and base <= offset < segments[base].next_offset:
            _, position, size = answer
            stored = Path(segments[base].path).read_bytes()[position : position + size]
            assert bytes(log.fetch(offset, max_bytes=1).memory()) == stored
