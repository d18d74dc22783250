"""klog.spark.materialize and klog.spark.table without Spark: plans, files, manifests, and the rows that readers see."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import AlreadyLocked, BadValue, CorruptData, InconsistentTopicId, NewerFormat, UnknownTopicOrPartition
from klog.record import encode
from klog.spark.bounds import DataLoss
from klog.spark.materializing import TARGET_BYTES
from klog.spark.table_files import Bucket, Keyed, Piece, Place, hashes, write_piece
from klog.spark.table_manifest import DataFile
from klog.spark.table_store import TableStore
from tests.support import tables
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.examples import examples
from tests.support.own_json import unchecked
from tests.support.tables import LocalJobs, Row, in_log, latest_of, manifest, materialize, shown, stored, table


@pytest.fixture
def data(tmp_path: Path) -> Path:
    create(tmp_path / "data")
    return tmp_path / "data"


def create(path: Path, partitions: int = 2, **config: object) -> None:
    with klog.open(path, create=True) as logs:
        logs.create_topic("t", partitions=partitions, config={"segment.bytes": 2048, **config})


def append(path: Path, first: int, count: int, partition: int | None = None, keys: int = 11) -> None:
    """Append the records first, first + 1, …; every seventh is a tombstone."""
    records = [
        (b"k%d" % (n * n % keys), None if n % 7 == 3 else b"value %d " % n * 5) for n in range(first, first + count)
    ]
    with klog.open(path) as logs:
        if partition is None:
            logs.append("t", records)
        else:
            logs.log("t", partition).append(records)


def names(target: Path) -> list[str]:
    return sorted(path.name for path in target.iterdir() if path.name != "_klog")


def files_of(target: Path) -> set[str]:
    return set(os.listdir(target / "_klog" / "files"))


# ---- what is in a table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latest", [False, True])
def test_each_call_adds_the_new_records(data: Path, tmp_path: Path, latest: bool) -> None:
    target = tmp_path / "out"
    for number in range(6):
        append(data, 40 * number, 40)
        report = materialize(data, target, latest=latest)
        rows = in_log(data)
        new = [row for row in rows if row[1] >= report.ranges[row[0]][0]]
        assert report.rows == (len({(row[0], row[2]) for row in new}) if latest else 40)
        assert report.version == number + 1
        assert sum(end - start for start, end in report.ranges.values()) == 40
        assert sorted(shown(target)) == sorted(stored(target)) == (latest_of(rows) if latest else sorted(rows))
        assert materialize(data, target, latest=latest) == tables.Materialized(0, 0, {}, number + 1)


def test_a_table_of_a_compacted_topic_has_the_latest_records_by_default(tmp_path: Path) -> None:
    create(tmp_path / "data", **{"cleanup.policy": "compact"})
    append(tmp_path / "data", 0, 100)
    materialize(tmp_path / "data", tmp_path / "latest")
    materialize(tmp_path / "data", tmp_path / "all", latest=False)
    rows = in_log(tmp_path / "data")
    assert sorted(shown(tmp_path / "latest")) == latest_of(rows)
    assert sorted(shown(tmp_path / "all")) == sorted(rows)


def test_a_table_of_the_latest_has_no_rows_without_a_key(data: Path, tmp_path: Path) -> None:
    with klog.open(data) as logs:
        logs.log("t", 0).append([(None, b"a"), (b"k", b"b"), (None, None), (b"", b"empty")])
    assert materialize(data, tmp_path / "out", latest=True).rows == 2
    assert sorted(shown(tmp_path / "out")) == [(0, 1, b"k", b"b"), (0, 3, b"", b"empty")]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 60), st.integers(0, 1)),
        st.tuples(st.just("materialize"), st.sampled_from([500, 3000, 20_000]), st.just(0)),
        st.tuples(st.just("compact"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("delete"), st.integers(0, 100), st.integers(0, 1)),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=examples(deep=200) // 6)
@given(operations=OPERATIONS, latest=st.booleans())
def test_table_and_target_have_all_records_that_the_log_had(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, int]], latest: bool
) -> None:
    """This holds after each append, compaction, deletion and call of materialize."""
    home = tmp_path_factory.mktemp("table")
    data, target = home / "data", home / "out"
    create(data, **{"cleanup.policy": "compact,delete"})
    materialize(data, target, latest=latest)
    added: set[Row] = set()
    ends = [0, 0]
    written = 0
    for what, number, partition in operations:
        if what == "append":
            append(data, written, number, partition)
            written += number
        elif what == "materialize":
            newer = [row for row in in_log(data) if row[1] >= ends[row[0]]]
            report = materialize(data, target, latest=latest, target_bytes=number)
            assert report.rows == (len({(row[0], row[2]) for row in newer}) if latest else len(newer))
            added.update(newer)
            ends = [manifest(target).partitions[each].end for each in (0, 1)]
        else:
            with klog.open(data) as logs:
                log = logs.log("t", partition)
                if what == "compact":
                    log.compact(roll=True)
                else:
                    log.delete_records(ends[partition] * number // 100)
        rows = [*added, *(row for row in in_log(data) if row[1] >= ends[row[0]])]
        assert sorted(shown(target)) == sorted(stored(target)) == (latest_of([*added]) if latest else sorted(added))
        assert sorted(table(data, target)) == (latest_of(rows) if latest else sorted(rows))
        if latest and not any(what == "delete" for what, *_ in operations):
            assert sorted(table(data, target)) == latest_of(in_log(data))
    check_files(target)
    shutil.rmtree(home)


def check_files(target: Path) -> None:
    """Check that files cover their offsets or keys without gaps, in order, and match the manifest."""
    found = manifest(target)
    store = TableStore(str(target))
    assert files_of(target) == {*(file.name for file in found.files), *found.kept}
    for partition, extract in found.partitions.items():
        files = found.of(partition)
        for file in files:
            rows = pa.parquet.read_table(store.path(file.name))
            offsets = rows.column("offset").to_pylist()
            assert (len(rows), os.path.getsize(store.path(file.name))) == (file.rows, file.size)
            assert offsets == sorted(offsets) and all(file.start <= each < file.end for each in offsets)
            if found.latest and len(rows):
                low = hashes(rows.column("key").combine_chunks()) & ((1 << file.bits) - 1)
                assert set(low.tolist()) == {file.bucket}
        if found.latest:
            buckets = {file.bucket + (step << file.bits) for file in files for step in range(1 << (16 - file.bits))}
            assert len(buckets) == sum(1 << (16 - file.bits) for file in files)
        elif files:
            assert extract.start <= files[0].start and files[-1].end <= extract.end
            assert all(one.end <= two.start for one, two in pairwise(files))


def test_only_the_last_file_of_a_partition_is_small(tmp_path: Path) -> None:
    create(tmp_path / "data", 1)
    for number in range(8):
        append(tmp_path / "data", 30 * number, 30)
        materialize(tmp_path / "data", tmp_path / "out", target_bytes=3000)
        sizes = [file.size for file in manifest(tmp_path / "out").files]
        assert all(size >= 3000 for size in sizes[:-1])
    assert len(sizes) > 2
    check_files(tmp_path / "out")


def test_one_call_writes_several_files_of_the_wanted_size(tmp_path: Path) -> None:
    create(tmp_path / "data", 1, **{"segment.bytes": 1 << 20})
    append(tmp_path / "data", 0, 2000, keys=1999)
    for piece_is_last in (True, False):
        home = tmp_path / str(piece_is_last)
        home.mkdir()
        source = tables.KlogSource({"path": str(tmp_path / "data")})
        reader = source.reader(source.schema())
        (wanted,) = reader.partitions()[0].value
        place = Place(str(home), ("offset", "key", "value"), "zstd", 8000)
        # The rows come in batches of any size; the reader's are as large as its segments.
        batches = (part for whole in LocalJobs(reader).read(wanted) for part in _parts(whole, 40))
        found = write_piece(Piece(wanted, None, piece_is_last), batches, place)
        assert len(found) > 1 and sum(file.rows for file in found) == 2000
        assert [file.start for file in found] == [0, *(file.end for file in found[:-1])] and found[-1].end == 2000
        sized = found[:-1] if piece_is_last else found
        assert all(file.size >= 8000 for file in sized)


@pytest.mark.deep
def test_files_have_128_mib_by_default(tmp_path: Path) -> None:
    """Values that cannot be compressed. The second call adds to the last file of each partition."""
    create(tmp_path / "data", 2, **{"segment.bytes": 64 << 20})
    ends = [0, 0]
    for mebibytes in ((300, 40), (40, 40)):
        with klog.open(tmp_path / "data") as logs:
            for partition, count in enumerate(mebibytes):
                for _ in range(count):
                    logs.log("t", partition).append([(None, os.urandom(1 << 18)) for _ in range(4)])
                ends[partition] += 4 * count
        report = materialize(tmp_path / "data", tmp_path / "out", target_bytes=TARGET_BYTES, columns="partition,value")
        assert report.rows == 4 * sum(mebibytes)
    files = manifest(tmp_path / "out").files
    of_first, of_second = ([file for file in files if file.partition == partition] for partition in range(2))
    assert (len(of_first), len(of_second)) == (3, 1)
    assert all(128 << 20 <= file.size < 256 << 20 for file in of_first[:-1])
    for some, end in zip((of_first, of_second), ends, strict=True):
        assert sum(file.rows for file in some) == end
        assert all(os.path.getsize(tmp_path / "out" / "_klog" / "files" / file.name) == file.size for file in some)


def _parts(whole: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, whole.num_rows, rows):
        yield whole.slice(start, rows)


def test_buckets_split_as_they_grow_and_only_those_with_new_keys_are_written(tmp_path: Path) -> None:
    create(tmp_path / "data", 1)
    target = tmp_path / "out"
    for number in range(8):
        append(tmp_path / "data", 60 * number, 60, keys=5003)
        materialize(tmp_path / "data", target, latest=True, target_bytes=4000)
        assert sorted(shown(target)) == latest_of(in_log(tmp_path / "data"))
        check_files(target)
    before = {file.name for file in manifest(target).files}
    assert len(before) >= 4
    with klog.open(tmp_path / "data") as logs:
        logs.append("t", [(b"k1", b"one key")])
    report = materialize(tmp_path / "data", target, latest=True, target_bytes=1 << 20)
    assert report.files == 1 and len(before - {file.name for file in manifest(target).files}) == 1
    assert sorted(shown(target)) == latest_of(in_log(tmp_path / "data"))


def test_a_bucket_of_one_large_record_is_not_split_without_end(tmp_path: Path) -> None:
    create(tmp_path / "data", 1, **{"segment.bytes": 1 << 20})
    for _ in range(6):
        with klog.open(tmp_path / "data") as logs:
            logs.append("t", [(b"k", os.urandom(40_000))])
        materialize(tmp_path / "data", tmp_path / "out", latest=True, target_bytes=3000)
    assert max(file.bits for file in manifest(tmp_path / "out").files) == 16
    assert shown(tmp_path / "out") == [row for row in in_log(tmp_path / "data") if row[1] == 5]


def test_other_engines_read_the_target(data: Path, tmp_path: Path) -> None:
    duckdb, polars = (pytest.importorskip(name, reason=f"needs: {name}") for name in ("duckdb", "polars"))
    append(data, 0, 100)
    for _ in range(2):
        materialize(data, tmp_path / "out", target_bytes=2000)
        append(data, 100, 10)
    for pattern in (f"{tmp_path}/out/*.parquet", f"{tmp_path}/out/**/*.parquet"):
        query = f"SELECT count(*), max(epoch_ms(timestamp)), sum(octet_length(value)) FROM '{pattern}'"
        frame = polars.scan_parquet(pattern).select(
            polars.len(), polars.col("timestamp").max().dt.epoch("ms"), polars.col("value").bin.size().sum()
        )
        (found,) = duckdb.sql(query).fetchall()
        assert found == frame.collect().row(0) and found[0] == 110


def test_keys_of_one_partition_spread_over_its_buckets() -> None:
    """The partitioner chose keys with the same low bits of murmur2."""
    from klog.manager.partitioner import targets

    keys = pa.array([b"key %d" % number for number in range(4000)])
    rows = pa.RecordBatch.from_arrays([keys, pa.nulls(4000, pa.binary())], names=["key", "value"])
    mine = keys.filter(pa.array([each == 3 for each in memoryview(targets(rows, 16, 0)).cast("i")]))
    counts = [0] * 16
    for each in hashes(mine) & 15:
        counts[each] += 1
    assert min(counts) > len(mine) // 16 // 3


def test_a_row_gets_the_bucket_of_its_longest_bits() -> None:
    file = DataFile("x", 0, 0, 0, 0, 0, 0)
    buckets = [Bucket(1, 0, 0), Bucket(0, 1, 0), Bucket(0, 2, 1, file), Bucket(0, 2, 3, file)]
    keys = pa.array([b"%d" % number for number in range(100)])
    found = Keyed(0, buckets).rows(pa.RecordBatch.from_arrays([keys], names=["key"]))
    wanted = [{0: 1, 1: 2, 2: 1, 3: 3}[each] for each in (hashes(keys) & 3).tolist()]
    assert found.column(tables.BUCKET).to_pylist() == wanted


# ---- options -----------------------------------------------------------------------------------------------------------


def test_a_table_has_the_columns_and_the_codec_that_were_asked_for(data: Path, tmp_path: Path) -> None:
    append(data, 0, 50)
    given = {"columns": "offset,key,partition", "metadataColumns": "codec", "includeHeaders": "true"}
    materialize(data, tmp_path / "out", compression="snappy", **given)
    (path, *_) = (tmp_path / "out").glob("*.parquet")
    file = pa.parquet.ParquetFile(path)
    assert file.schema_arrow.names == ["offset", "key", "partition", "headers", "codec"]
    column = file.metadata.row_group(0).column(0)
    assert column.compression == "SNAPPY" and column.statistics.has_min_max and column.has_column_index
    append(data, 50, 50)
    materialize(data, tmp_path / "out", target_bytes=1 << 20, **given)
    assert sum(pa.parquet.read_metadata(path).num_rows for path in (tmp_path / "out").glob("*.parquet")) == 100


def test_a_table_may_have_no_offsets(data: Path, tmp_path: Path) -> None:
    append(data, 0, 50)
    for _ in range(2):
        materialize(data, tmp_path / "out", columns="value")
        append(data, 50, 50)
    found = pa.parquet.read_table(tmp_path / "out")
    assert (found.column_names, len(found)) == (["value"], 100)


def test_committed_records_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with klog.Log.open(tmp_path / "data" / "t-0", clock=ManualClock(NOW)) as log:
        log.append_batches(transactional(1, 0, 0, 2))
        log.append_batches(marker(1, 0, "abort"), origin="coordinator")
        log.append_batches(batch(3))
    for isolation, offsets in (("read_committed", [3, 4, 5]), ("read_uncommitted", [0, 1, 3, 4, 5])):
        target = tmp_path / isolation
        materialize(tmp_path / "data", target, isolationLevel=isolation)
        assert [row[1] for row in sorted(shown(target))] == offsets
        assert [row[1] for row in sorted(table(tmp_path / "data", target))] == offsets


@pytest.mark.parametrize(
    "option",
    ["paths", "subscribe", "assign", "startingOffsets", "endingTimestamp", "view", "pushdown", "minPartitions",
     "checkpointLocation", "commitGroup", "maxOffsetsPerTrigger"],
)  # fmt: skip
def test_an_option_that_chooses_records_is_refused_by_name(data: Path, tmp_path: Path, option: str) -> None:
    with pytest.raises(ValueError, match=f"'{option}' has no place here"):
        materialize(data, tmp_path / "out", **{option: "x"})
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_read_is_an_error_before_anything_is_written(data: Path, tmp_path: Path) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "unknown option 'colums'", {"colums": "key"}),
        (ValueError, "columns key, value, partition: add value", {"latest": True, "columns": "key,partition"}),
        (ValueError, "isControl", {"latest": True, "metadataColumns": "isControl"}),
        (ValueError, "one topic expected", {"topic": "t,u"}),
        (UnknownTopicOrPartition, "no topic u here; topics: t", {"topic": "u"}),
    ]
    for kind, text, arguments in wrong:
        with pytest.raises(kind, match=text):
            materialize(data, tmp_path / "out", **arguments)
        assert not list((tmp_path / "out").glob("*.parquet"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(ValueError, match="not empty, and klog.spark.materialize has not written it"):
        materialize(data, tmp_path / "full")
    for target, text in (("s3://bucket/x", "local"), ("~/x", "local"), (__file__, "not a directory")):
        with pytest.raises(ValueError, match=text):
            tables.request(str(data), "t", target, {}, "1")
    for path in ([tmp_path, str(data)], data / "t-0"):
        with pytest.raises(ValueError, match="is in the log directory"):
            tables.request(path, "t", data / "x", {}, "1")
    for path, kind in ((None, TypeError), (5, TypeError), ("", ValueError), ([], ValueError)):
        with pytest.raises(kind, match="path"):
            tables.request(path, "t", tmp_path / "out", {}, "1")  # type: ignore[arg-type]
    assert tables.request(str(data), "t", f"file://{tmp_path}/x", {}, "1").target == f"{tmp_path}/x"


def test_the_options_of_a_table_cannot_be_changed(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with klog.open(data) as logs:
        logs.create_topic("u")
    append(data, 0, 10)
    materialize(data, target, columns="key,value,partition,offset", failOnDataLoss="true")
    same = {"COLUMNS": "key,value,partition,offset"}
    append(data, 10, 10)
    assert materialize(data, target, verifyCrc="false", **same).version == 2
    with pytest.raises(ValueError, match="with columns='key,value,partition,offset', but this call is without"):
        materialize(data, target)
    with pytest.raises(ValueError, match="without the option includeheaders, but this call is with"):
        materialize(data, target, includeHeaders="true", **same)
    with pytest.raises(ValueError, match="latest=False, not True"):
        materialize(data, target, latest=True, **same)
    with pytest.raises(ValueError, match="is a table of topic 't', not 'u'"):
        materialize(data, target, "u", **same)
    append(data, 20, 10)
    assert len(table(data, target)) == 30


JSON = {"valueFormat": "json", "valueSchema": "a BIGINT, m MAP<STRING, BIGINT>, t TIMESTAMP"}


def _json(data: Path, values: list[tuple[bytes, bytes | None]]) -> None:
    with klog.open(data) as logs:
        for each in values:
            logs.log("t", 0).append([each])


def test_decoded_values_are_kept_and_merged(data: Path, tmp_path: Path) -> None:
    for latest in (False, True):
        target = tmp_path / f"{latest}"
        wanted = []
        for number in range(3):
            document = json.dumps({"a": number, "m": {"x": number}, "t": "2013-02-08T05:00:00Z"}).encode()
            _json(data, [(b"k%d" % number, document), (b"gone", document), (b"gone", None)])
            materialize(data, target, latest=latest, target_bytes=1 << 20, keyFormat="string", **JSON)
            wanted.append((f"k{number}", number, [("x", number)]))
        (path,) = target.glob("klog-0*.parquet")
        found = pa.parquet.read_table(path).to_pylist()
        shown = [(row["key"], row["value"]["a"], row["value"]["m"]) for row in found if row["key"] != "gone"]
        assert shown[-3:] == wanted
        assert [row["value"] is None for row in found if row["key"] == "gone"] == (
            [] if latest else [False, True] * len(shown)
        )
        assert all(row["value"]["t"] is not None for row in found if row["value"])
        assert len(table(data, target)) == len(found)


def test_a_bad_value_is_not_a_tombstone(data: Path, tmp_path: Path) -> None:
    given = {**JSON, "onBadValue": "null"}
    _json(data, [(b"k", b'{"a": 1}'), (b"l", b'{"a": 2}'), (b"k", b"not JSON"), (b"l", None)])
    for target, options in ((tmp_path / "out", given), (tmp_path / "why", {**given, "metadataColumns": "badValue"})):
        materialize(data, target, latest=True, **options)
        rows = [row for path in target.glob("*.parquet") for row in pa.parquet.read_table(path).to_pylist()]
        assert [(row["key"], row["value"]) for row in rows] == [(b"k", None)]
        assert (
            ("JSON" in rows[0]["badValue"]) if "badValue" in options.get("metadataColumns", "") else len(rows[0]) == 7
        )
    with pytest.raises(BadValue, match="t-0"):
        materialize(data, tmp_path / "fail", latest=True, **JSON)


@pytest.mark.parametrize(
    "given",
    [
        {"keyFormat": "json", "keySchema": "a INT"},
        {"keyFormat": "string", "onBadValue": "null"},
        {"keyFormat": "confluentAvro", "keySchema": '"bytes"', "onBadValue": "null"},  # of which bad ones are null
    ],
)
def test_key_formats_that_may_give_equal_keys_are_refused(data: Path, tmp_path: Path, given: dict[str, str]) -> None:
    if given["keyFormat"] == "confluentAvro":
        (tmp_path / "schemas.json").write_text('{"7": "\\"bytes\\""}')
        given = {**given, "schemas": str(tmp_path / "schemas.json")}
    with pytest.raises(ValueError, match="needs its keys: use keyFormat=bytes"):
        materialize(data, tmp_path / "out", latest=True, **given)
    materialize(data, tmp_path / "out", latest=False, **given)


def test_a_schema_may_be_written_differently_but_not_changed(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    _json(data, [(b"k", b'{"a": 1}')])
    materialize(data, target, valueFormat="json", valueSchema="a BIGINT")
    _json(data, [(b"l", b'{"a": 2}')])
    assert materialize(data, target, valueFormat="json", valueSchema="a bigint").rows == 1
    with pytest.raises(ValueError, match="other columns or types .* name the schema of the table by valueSchema"):
        materialize(data, target, valueFormat="json", valueSchema="a BIGINT, b INT")


# ---- losses ------------------------------------------------------------------------------------------------------------


def _retention(data: Path) -> None:
    with klog.open(data) as logs:
        logs.log("t", 1).delete_records(45)


def _truncation(data: Path) -> None:
    with klog.open(data) as logs:
        logs.log("t", 1).truncate_to(10)


def _recreation(data: Path) -> None:
    with klog.open(data) as logs:
        logs.delete_topic("t")
    create(data)
    append(data, 500, 100, partition=0)
    append(data, 500, 100, partition=1)


def _other_leader(data: Path) -> None:
    with klog.open(data) as logs:
        log = logs.log("t", 1)
        log.truncate_to(30)
        log.append_batches(batch(40), leader_epoch=7)


LOSSES = [
    (_retention, r"t-1: the table ends at offset 40, .* \[45, 60\) .*retention or a delete has removed \[40, 45\)", 45),
    (_truncation, r"t-1: the table ends at offset 40, .* \[0, 10\) .*truncated", 10),
    (_recreation, r"t-0: the table ends at offset 0, .*deleted and created again", 0),
    (_other_leader, r"t-1: the table ends at offset 40, .*leader epoch 0 ends at 30", 30),
]


@pytest.mark.parametrize(
    ("lose", "text", "continues_at"), LOSSES, ids=["retention", "truncation", "recreation", "leader"]
)
def test_a_loss_of_data_is_an_error_unless_allowed(
    data: Path, tmp_path: Path, lose: Any, text: str, continues_at: int
) -> None:
    target = tmp_path / "out"
    for first in range(0, 40, 10):
        append(data, first, 10, partition=1)
    materialize(data, target)
    old = stored(target)
    append(data, 40, 20, partition=1)
    lose(data)
    for call in (materialize, table):
        with pytest.raises(DataLoss, match=text + ".*failOnDataLoss=False"):
            call(data, target)
    assert stored(target) == old
    new = [row for row in in_log(data) if row[0] == 0 or row[1] >= continues_at]
    assert Counter(table(data, target, failOnDataLoss="false")) == Counter([*old, *new])
    materialize(data, target, failOnDataLoss="false")
    assert Counter(stored(target)) == Counter([*old, *new])
    append(data, 700, 20, partition=1)
    materialize(data, target)
    assert len(stored(target)) == len(old) + len(new) + 20


def test_two_ids_of_one_topic_are_an_error(data: Path, tmp_path: Path) -> None:
    with klog.open(data) as logs:
        logs.create_topic("other")
    shutil.copy(data / "other-0" / "partition.metadata", data / "t-1")
    (data / "klog-topics.json").unlink()  # a broker's directory has none
    with pytest.raises(InconsistentTopicId, match=r"t-1 has the topic id .* another partition of 't' has "):
        materialize(data, tmp_path / "out", failOnDataLoss="false")


def test_the_latest_record_of_a_key_is_that_of_the_later_leader(data: Path, tmp_path: Path) -> None:
    """Also where the record that it replaces had a higher offset."""
    target = tmp_path / "out"
    with klog.open(data) as logs:
        logs.log("t", 0).append([(b"kept", b"1"), (b"cut", b"2"), (b"both", b"3"), (b"both", b"4")])
    materialize(data, target, latest=True)
    with klog.open(data) as logs:
        log = logs.log("t", 0)
        log.truncate_to(1)
        log.append_batches(encode([(b"both", b"5"), (b"new", b"6")]), leader_epoch=7)
    expected = [(0, 0, b"kept", b"1"), (0, 1, b"cut", b"2"), (0, 1, b"both", b"5"), (0, 2, b"new", b"6")]
    assert sorted(table(data, target, failOnDataLoss="false")) == sorted(expected)
    assert materialize(data, target, failOnDataLoss="false").ranges == {0: (1, 3)}
    assert sorted(stored(target)) == sorted(expected)
    assert materialize(data, target).ranges == {}


# ---- commits -----------------------------------------------------------------------------------------------------------


def test_replaced_files_stay_until_the_next_commit(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    seen: list[set[str]] = []
    for number in range(4):
        append(data, 10 * number, 10, partition=0)
        materialize(data, target, target_bytes=1 << 20)
        seen.append({file.name for file in manifest(target).files})
        materialize(data, target)
        assert files_of(target) == seen[-1].union(*seen[-2:-1])
    assert len(set.union(*seen)) == 4


class _Unseen(LocalJobs):
    """The driver does not see one of the files that the tasks wrote."""

    def write(self, tasks: Sequence[Sequence[Piece]], place: Place) -> list[DataFile]:
        written = super().write(tasks, place)
        os.unlink(Path(place.directory, written[-1].name))
        return written


def test_a_file_that_the_driver_does_not_see_is_not_committed(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    append(data, 0, 30)
    materialize(data, target)
    append(data, 30, 30)
    with pytest.raises(FileNotFoundError, match="All machines of a cluster must see the target"):
        materialize(data, target, jobs=_Unseen)
    assert manifest(target).number == 1
    materialize(data, target)
    assert sorted(shown(target)) == sorted(in_log(data))


@pytest.mark.parametrize("change", ['"bits": 63', '"bits": 1099511627776', '"bits": "1"', '"bits": -1'])
def test_a_manifest_with_impossible_numbers_is_corrupt(data: Path, tmp_path: Path, change: str) -> None:
    append(data, 0, 30)
    materialize(data, tmp_path / "out", latest=True)
    path = tmp_path / "out" / "_klog" / "manifest.json"
    path.write_text(path.read_text().replace('"bits": 0', change))
    with pytest.raises(CorruptData, match="not a manifest"):
        materialize(data, tmp_path / "out")


def test_a_second_call_at_the_same_time_raises(data: Path, tmp_path: Path) -> None:
    append(data, 0, 10)
    with (
        TableStore(str(tmp_path / "out")).locked(),
        pytest.raises(AlreadyLocked, match=rf"{tmp_path}/out is being materialized by process {os.getpid()}"),
    ):
        materialize(data, tmp_path / "out")
    assert materialize(data, tmp_path / "out").rows == 10


class _OneFails(LocalJobs):
    """The second task fails after the first has written its files."""

    def write(self, tasks: Sequence[Sequence[Piece]], place: Place) -> list[DataFile]:
        super().write(tasks[:1], place)
        raise OSError("the task fails")


def test_files_of_a_failed_job_are_removed_by_the_next_job(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    append(data, 0, 30)
    materialize(data, target)
    old, rows = names(target), sorted(shown(target))
    append(data, 30, 30)
    with pytest.raises(OSError, match="the task fails"):
        materialize(data, target, jobs=_OneFails)
    assert names(target) == old and sorted(shown(target)) == rows
    materialize(data, target)
    check_files(target)
    assert sorted(shown(target)) == sorted(in_log(data))


def test_a_task_that_fails_removes_its_files(data: Path, tmp_path: Path) -> None:
    append(data, 0, 200, partition=0)

    def read(_: object) -> Iterator[pa.RecordBatch]:
        yield from _parts(pa.record_batch({"offset": pa.array(range(300)), "key": pa.array([b"k" * 99] * 300)}), 10)
        raise OSError("no")

    source = tables.KlogSource({"path": str(data)})
    (wanted,) = source.reader(source.schema()).partitions()[0].value
    with pytest.raises(OSError, match="no"):
        list(tables.write_pieces(read, [Piece(wanted)], Place(str(tmp_path), ("offset", "key"), "zstd", 100)))
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


class _Watching(RealFiles):
    """Calls a function around each change of a file."""

    def __init__(self, check: Any) -> None:
        super().__init__()
        self._check = check

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        self._check()
        super().replace(path, data, private=private)
        self._check()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._check()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._check()


@pytest.mark.parametrize("latest", [False, True])
def test_a_listing_during_a_commit_has_each_row_once(data: Path, tmp_path: Path, latest: bool) -> None:
    """A listing has each partition up to an offset between two commits; or each key as before or after a commit."""
    target = tmp_path / "out"
    append(data, 0, 60)
    materialize(data, target, latest=latest)
    append(data, 60, 120, keys=23)
    old, rows = sorted(shown(target)), in_log(data)
    listings = []

    def check() -> None:
        found = sorted(shown(target))
        listings.append(found)
        if manifest(target).number == 1:
            assert found == old
        assert len(set(found)) == len(found)
        if latest:
            keys = [(row[0], row[2]) for row in found]
            assert len(set(keys)) == len(keys) and {*found} <= {*old, *latest_of(rows)}
            assert {(row[0], row[2]) for row in {*old} & {*latest_of(rows)}} <= {*keys}
        else:
            assert {*old} <= {*found}
            for partition in (0, 1):
                mine = [row for row in found if row[0] == partition]
                assert mine == sorted(row for row in rows if row[0] == partition)[: len(mine)]

    materialize(data, target, latest=latest, target_bytes=2000, files=_Watching(check))
    assert listings[0] == old and listings[-1] == sorted(shown(target)) != old and len(listings) > 4


def test_a_name_that_was_removed_is_shown_again(data: Path, tmp_path: Path) -> None:
    append(data, 0, 30)
    materialize(data, tmp_path / "out")
    for path in (tmp_path / "out").glob("*.parquet"):
        path.unlink()
    materialize(data, tmp_path / "out")
    assert sorted(shown(tmp_path / "out")) == sorted(in_log(data))


def test_a_manifest_that_cannot_be_used_is_an_error_that_names_it(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "_klog" / "manifest.json"
    append(data, 0, 30)
    materialize(data, tmp_path / "out")
    good = path.read_bytes()
    loose = json.dumps(unchecked(good)).encode()
    for bad in (b"", b"{}", good[:-9], loose.replace(b'"files"', b'"xyles"'), loose.replace(b'"slot"', b'"slut"')):
        path.write_bytes(bad)
        with pytest.raises(CorruptData, match=re.escape(str(path))):
            materialize(data, tmp_path / "out")
    path.write_bytes(json.dumps({**json.loads(loose), "version": 2}).encode())
    with pytest.raises(NewerFormat, match="version 2, this klog reads 1: upgrade klog"):
        materialize(data, tmp_path / "out")
    path.write_bytes(good)
    for file in files_of(tmp_path / "out"):
        os.unlink(tmp_path / "out" / "_klog" / "files" / file)
    with pytest.raises(CorruptData, match="a file of the table is missing"):
        materialize(data, tmp_path / "out")
