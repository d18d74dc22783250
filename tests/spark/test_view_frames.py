"""Views and klog.spark.scan in a Spark session: one JVM for the module."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klog.spark
from klog.spark import views
from tests.spark.conftest import FLIGHTS, PARTITIONS, Directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]

ROOT = Path(__file__).resolve().parents[2]
EACH = FLIGHTS // PARTITIONS


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    def load(path: Path, **options: str) -> DataFrame:
        return spark.read.format("klog").options(**options).load(str(path))

    return load


@pytest.mark.parametrize("case", ["txn", "compacted", "codecs", "trimmed"])
def test_counts_by_batches_equal_those_of_records(
    load: Callable[..., DataFrame], golden: Callable[[str], Path], case: str
) -> None:
    logdir = golden(case) / "logdir"
    batches = load(logdir, view="batches").where("NOT isControl")
    assert batches.agg({"recordCount": "sum"}).collect()[0][0] == load(logdir).count()


def test_every_view_has_its_columns(load: Callable[..., DataFrame], shared_data: Directory) -> None:
    for view in ("batches", "segments", "partitions", "producers", "transactions"):
        frame = load(shared_data.path, view=view)
        assert {field.name: field.dataType.simpleString() for field in frame.schema} == views.COLUMNS[view]
        assert all(field.nullable for field in frame.schema)
        frame.collect()
        first, last = list(views.COLUMNS[view])[:: len(views.COLUMNS[view]) - 1]
        narrow = load(shared_data.path, view=view, columns=f"{last}, {first}")
        assert narrow.columns == [last, first]
        assert Counter(map(str, narrow.collect())) == Counter(map(str, frame.select(last, first).collect()))


def test_a_schema_chooses_columns(spark: SparkSession, shared_data: Directory) -> None:
    reader = spark.read.format("klog").option("view", "batches")
    frame = reader.schema("codec string, recordCount int").load(str(shared_data.path))
    assert Counter(frame.groupBy("codec").sum("recordCount").collect()) == {("none", EACH): 1, ("lz4", 2 * EACH): 1}
    with pytest.raises(Exception, match="view=batches has no column 'codek'"):
        reader.schema("codek string").load(str(shared_data.path)).count()


def test_bounds_apply_to_batches(load: Callable[..., DataFrame], shared_data: Directory) -> None:
    """Each batch has 20 records. A batch that crosses a bound counts only its records inside."""
    options = {
        "subscribe": "flights",
        "startingOffsets": '{"flights":{"0":10,"1":25}}',
        "endingOffsets": '{"flights":{"0":55,"2":7}}',
    }
    frame = load(shared_data.path, view="batches", **options)
    found = frame.groupBy("partition").sum("recordCount").collect()
    assert dict(map(tuple, found)) == {0: 45, 1: EACH - 25, 2: 7}
    assert load(shared_data.path, **options).count() == 45 + EACH - 25 + 7


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"view": "batchs"}, "option 'view' must be one of records, batches"),
        ({"view": "remoteSegments"}, "has no remote tiers"),
        ({"view": "segments", "startingOffsets": "earliest"}, "'startingOffsets' has no meaning with view=segments"),
        ({"view": "batches", "columns": "codek"}, "'codek', which is unknown; view=batches has: topic"),
    ],
)
def test_a_wrong_option_fails_the_load(
    load: Callable[..., DataFrame], shared_data: Directory, options: dict[str, str], why: str
) -> None:
    with pytest.raises(Exception, match=why):
        load(shared_data.path, **options)


class TestScan:
    """klog.spark.scan returns the rows of format("klog")."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"subscribe": "flights", "includeHeaders": True},
            {"startingOffsets": {"flights": {"0": 10, "1": -2, "2": 300}}},
            {"endingTimestamp": 1360299900000},
            {"view": "batches"},
            {"view": "segments", "assign": {"flights": [1]}},
            {"view": "partitions"},
        ],
    )
    def test_equals_the_data_source(
        self, spark: SparkSession, load: Callable[..., DataFrame], shared_data: Directory, options: dict[str, object]
    ) -> None:
        import json

        text = {
            name: json.dumps(value) if isinstance(value, dict) else str(value).lower()
            for name, value in options.items()
        }
        found = klog.spark.scan(spark, shared_data.path, **options)
        expected = load(shared_data.path, **text)
        assert found.schema == expected.schema
        assert Counter(map(str, found.collect())) == Counter(map(str, expected.collect()))

    def test_columns(self, spark: SparkSession, shared_data: Directory) -> None:
        found = klog.spark.scan(spark, shared_data.path, ["offset", "partition"], subscribe="flights")
        assert found.columns == ["offset", "partition"]
        assert Counter(map(tuple, found.collect())) == Counter((row.offset, row.partition) for row in shared_data.rows)
        assert klog.spark.scan(spark, shared_data.path, "value").columns == ["value"]
        sizes = klog.spark.scan(spark, shared_data.path, ["recordCount"], view="batches")
        assert sizes.agg({"recordCount": "sum"}).collect()[0][0] == FLIGHTS

    def test_several_paths_and_an_empty_topic(self, spark: SparkSession, shared_data: Directory) -> None:
        paths = [shared_data.path / "flights-0", str(shared_data.path / "flights-2")]
        assert klog.spark.scan(spark, paths).count() == 2 * EACH
        empty = klog.spark.scan(spark, shared_data.path, subscribe="empty")
        assert (empty.count(), empty.collect()) == (0, [])

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"columns": ["ofset"]}, "columns has 'ofset', which is unknown; use some of key"),
            ({"columns": []}, "the schema has no columns"),
            ({"subscribee": "x"}, "Did you mean 'subscribe'"),
            ({"Paths": "x"}, "option 'Paths' is an argument of scan"),
        ],
    )
    def test_wrong_arguments(
        self, spark: SparkSession, shared_data: Directory, options: dict[str, object], why: str
    ) -> None:
        with pytest.raises(ValueError, match=why):
            klog.spark.scan(spark, shared_data.path, **options)

    def test_the_range_is_planned_at_the_call(self, spark: SparkSession, data: Directory) -> None:
        found = klog.spark.scan(spark, data.path, ["offset"], subscribe="flights")
        with klog.open(data.path) as logs:
            logs.log("flights", 0).append([(b"k", b"v")] * 5)
        assert found.count() == FLIGHTS
        assert klog.spark.scan(spark, data.path).count() == FLIGHTS + 5
