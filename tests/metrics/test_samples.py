"""Metrics under Kafka's MBean names, as text for Prometheus, and as instruments of OpenTelemetry."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import klog
from klog.clock import ManualClock
from klog.log.read import gauges, isolation
from klog.metrics import opentelemetry, prometheus, snapshot
from klog.metrics.names import DEFINITIONS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path / 'a "dir"', create=True, clock=ManualClock()) as logs:
        logs.create_topic("t.x-y", partitions=2)
        logs.create_topic("u")
        logs.start()
        logs.log("t.x-y", 1).append([(b"k", b"v")] * 3)
        logs.log("t.x-y", 1).flush()
        logs.log("u").append([(b"k", b"v")])
        logs.log("u").fetch(0)
        yield logs


def values(logs: klog.LogManager) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The values that Prometheus' own parser finds, by name and labels."""
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(prometheus(logs))
        for sample in family.samples
    }


def test_samples_have_kafkas_names(logs: klog.LogManager) -> None:
    found = {sample.mbean: sample for sample in snapshot(logs, page_cache=True)}
    broker = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"
    assert found[broker].attributes["Count"] == 4 and found[broker + ",topic=t.x-y"].attributes["Count"] == 3
    assert set(found[broker].attributes) >= {"MeanRate", "OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate"}
    size = found["kafka.log:type=Log,name=Size,topic=t.x-y,partition=1"]
    assert size.attributes == {"Value": logs.log("t.x-y", 1).size}
    flush = found["kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"].attributes
    assert flush["Count"] == 1 and {"OneMinuteRate", "Mean", "99thPercentile", "Max"} <= set(flush)
    quoted = str(logs.path).replace('"', r"\"")
    assert found[f'kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory="{quoted}"'].attributes["Value"] == 0
    assert found["kafka.log:type=LogCleaner,name=DeadThreadCount"].attributes["Value"] == 0
    assert found["kafka.server:type=ReplicaManager,name=PartitionCount"].attributes["Value"] == 3


def test_no_lag_is_negative_beside_appends(logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    real = isolation.last_stable_offset

    def after_an_append(log: Any) -> int:
        logs.append("u", [(b"k", b"v")])
        return real(log)

    for module in (isolation, gauges):
        monkeypatch.setattr(module, "last_stable_offset", after_an_append)
    name = "kafka_cluster_partition_laststableoffsetlag", (("topic", "u"), ("partition", "0"))
    assert values(logs)[name] == logs.log("u").metrics()["LastStableOffsetLag"] == 0


@pytest.mark.parametrize("empty", [0, 1])
def test_a_reader_whose_log_loses_its_segments_in_between(
    logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch, empty: int
) -> None:
    """Each look follows the writer, which may delete the topic and create it again."""
    looks, real = itertools.count(), vars(klog.Log)["segments"].fget
    with klog.open(logs.paths, read_only=True) as reading:
        reading.load_all()
        monkeypatch.setattr(klog.Log, "segments", property(lambda log: () if next(looks) % 2 == empty else real(log)))
        assert reading.metrics()["ActiveSegmentSize"]


def test_prometheus_reads_the_text(logs: klog.LogManager) -> None:
    found = values(logs)
    assert found["kafka_server_brokertopicmetrics_messagesin_total", ()] == 4
    assert found["kafka_server_brokertopicmetrics_bytesin_total", (("topic", "u"),)] == logs.log("u").size
    assert found["kafka_log_log_size", (("topic", "t.x-y"), ("partition", "1"))] == logs.log("t.x-y", 1).size
    assert found["kafka_log_logflushstats_logflushrateandtimems_count", ()] == 1
    assert ("kafka_log_logflushstats_logflushrateandtimems", (("quantile", "0.99"),)) in found
    assert ("kafka_log_logflushstats_logflushrateandtimems_sum", ()) in found
    assert found["klog_disk_logdirectory_totalbytes", (("logDirectory", logs.path),)] > 0
    families = [line.split()[2] for line in prometheus(logs).splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


def test_opentelemetry_collects_the_same_values(logs: klog.LogManager) -> None:
    reader = InMemoryMetricReader()
    opentelemetry(logs, MeterProvider([reader]).get_meter("test"))

    def collected() -> dict[tuple[str, tuple[tuple[str, Any], ...]], float]:
        data = reader.get_metrics_data()
        return {
            (metric.name, tuple(sorted(point.attributes.items()))): point.value
            for metric in (data.resource_metrics[0].scope_metrics[0].metrics if data else ())
            for point in metric.data.data_points
        }

    found = collected()
    assert found["kafka.server.brokertopicmetrics.messagesin", ()] == 4
    key = "kafka.log.log.logendoffset", (("partition", "1"), ("topic", "t.x-y"))
    assert found[key] == 3 and found["kafka.log.logflushstats.logflushrateandtimems.count", ()] == 1
    logs.log("t.x-y", 1).append([(b"k", b"v")])
    logs.clock.advance(1000)  # type: ignore[attr-defined]
    assert collected()[key] == 4


def test_every_defined_metric_is_documented_and_has_values(logs: klog.LogManager) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    missing = [each.name for each in DEFINITIONS if f"`{each.domain}:type={each.type},name={each.name}" not in page]
    assert not missing
    given = {(sample.domain, sample.type, sample.name) for sample in snapshot(logs, page_cache=True)}
    lacking = {each.name for each in DEFINITIONS if (each.domain, each.type, each.name) not in given}
    on_a_disk = {each.name for each in DEFINITIONS if each.type == "Device"}
    in_a_cache = {each.name for each in DEFINITIONS if each.name.startswith("PageCache")}
    assert lacking <= {"remainingLogsToRecover", "remainingSegmentsToRecover", *on_a_disk, *in_a_cache}


def test_the_dashboard_uses_names_that_exist(logs: klog.LogManager) -> None:
    board = json.loads((ROOT / "docs" / "grafana" / "klog.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    names = {name for query in queries for name in re.findall(r"\b(?:kafka|klog)_\w+", query)}
    known = {name for name, _ in values(logs)} | {"klog_disk_device_busyms_total", "klog_disk_device_queuems_total"}
    assert len(queries) >= 15 and names and names <= known
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len({panel["id"] for panel in board["panels"]}) == len(set(places)) == len(places)
