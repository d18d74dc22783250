"""The benchmarks still work: every contest, pytest-benchmark test and pyperf script, tiny, with results checked.

Those with Kafka start a JVM each, those with Krabka build its crate: both belong to the deep run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from platform import machine
from typing import Any

import pytest

from bench import before, broker_contests, broker_peers, plot
from bench.figures import lines

pytestmark = pytest.mark.timeout(900)  # the usual limit, and so this file, minutes of one process, starts first
ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("aiokafka", "google_crc32c", "matplotlib", "pytest_benchmark", "pyperf", "pyarrow")

if absent := [name for name in NEEDED if find_spec(name) is None]:
    pytest.skip(f"needs: {', '.join(absent)} (extra [dev])", allow_module_level=True)


def run(*arguments: str, **changes: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KLOG_BENCH_TINY": "1", **changes}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def races(table: str, figures: dict[str, Any]) -> set[str]:
    """The first words of the contests that were run, each of them complete."""
    assert set(figures["machine"]) == {"cpu", "cores", "kernel", "python", "commit"}
    for result in figures["results"]:
        assert result["contest"] in table
        assert len(result["contestants"]) >= 2
        assert all(contestant["seconds"][0] > 0 for contestant in result["contestants"])
        assert result["contestants"][-1]["ratio"] == 1
        assert result["limit"] is None or result["limit"]["median"] > 0
    return {result["contest"].split()[0] for result in figures["results"]}


def test_every_contest_runs_and_is_drawn(tmp_path):
    others = ("--without", "kafka", "--without", "krabka")
    table = run("-m", "bench.compare", "--tiny", *others, "--save", str(tmp_path / "figures.json"))
    figures = json.loads((tmp_path / "figures.json").read_text())
    subjects = {
        "encode",
        "decode",
        "views",
        "validate",
        "crc32c",
        "append",
        "sustained",
        "recover",
        "read",
        "verify",
        "slice",
        "send",
        "disk",
        "lookup",
        "headers",
    }
    assert races(table, figures) == subjects | {
        "compact",
        "compress",
        "decompress",
        "group",
        "keys",
        "network",
        "retention",
        "segments",
        "store",
    }
    if machine() in ("x86_64", "AMD64"):
        assert "crc32c kernels 1KiB" in table
    plot.draw(figures, tmp_path / "figures.svg")
    drawn = (tmp_path / "figures.svg").read_text()
    drawable = {(line.contest, line.contestant) for line in lines(figures)}
    found = [entry for entries in plot.HEADLINES.values() for entry in entries if entry[:2] in drawable]
    assert len(found) > 4 and all(label in drawn and f"× {peer}" in drawn for _, _, label, peer in found)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("peer", "subjects"),
    [
        pytest.param(
            "kafka", "encode decode validate open recover translate append compact fetch broker", marks=pytest.mark.java
        ),
        pytest.param("krabka", "fetch read open recover append checksum", marks=pytest.mark.cargo),
    ],
)
def test_every_contest_with_a_peer_runs(tmp_path, peer, subjects):
    table = run("-m", "bench.compare", "--tiny", peer, "--save", str(tmp_path / "figures.json"))
    figures = json.loads((tmp_path / "figures.json").read_text())
    if figures["skipped"]:
        pytest.skip(f"needs: {next(iter(figures['skipped'].values()))}")
    assert races(table, figures) == {peer}
    assert {result["contest"].split()[1] for result in figures["results"]} == set(subjects.split())


def test_the_cost_of_each_durability_level_is_still_measured(tmp_path):
    output = run("-m", "bench.levels", str(tmp_path), "--tiny")
    assert "a power cut | klog append" in output
    assert "a crash of the process | sqlite3" in output


def test_the_tails_of_durable_appends_are_still_measured(tmp_path):
    output = run("-m", "bench.tails", str(tmp_path), "--tiny", "--save", str(tmp_path / "figures"))
    figures = json.loads((tmp_path / "figures").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    assert {row["scenario"] for row in figures["rows"]} == {
        "alone, 200 a second",
        "alone, 2000 a second",
        "beside the cleaning of another",
        "beside its own cleaning",
        "over 0.00195 GiB",
    }
    expected = {"pwrite + fdatasync", "klog append", "klog append, 16 threads", "sqlite3", "LMDB", "RocksDB"}
    assert {row["contestant"] for row in figures["rows"]} >= expected - set(figures["skipped"])
    for row in figures["rows"]:
        assert row["contestant"] in output
        assert 0 < row["p50"] <= row["p99"] <= row["p99.9"] <= row["max"]
        assert row["samples"] > 0
        assert row["rate"] > 0
    for name, needs in figures["skipped"].items():
        assert re.search(rf"^{name} +needs: {needs}$", output, re.MULTILINE)


def test_calls_are_still_compared_with_those_of_another_commit(tmp_path):
    found = before.measured(tmp_path, tiny=True)
    assert len(found) == 12 and min(found.values()) > 0


def test_the_cost_of_a_durable_append_by_io_uring_is_still_measured(tmp_path):
    output = run("-m", "bench.uring", str(tmp_path), "--tiny")
    assert list(tmp_path.iterdir()) == []
    for title in ("1 KiB, allocated", "1 KiB, written zeros", "16 KiB, allocated", "16 KiB, written zeros"):
        assert re.search(rf"^{title} +p10 us", output, re.MULTILINE)
    for name in ("pwrite, fdatasync", "pwritev2 RWF_DSYNC", "io_uring write -> fdatasync", "io_uring write RWF_DSYNC"):
        assert re.search(rf"^  {name} +[0-9.]+|{name} needs: a kernel that permits ", output, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [
        ("cgroup", "--size", "1000000"),
        ("keys", "--records", "20000", "--map", "200000"),
        ("live", "--size", "500000", "--seconds", "0.05"),
    ],
    ids=lambda given: given[0],
)
def test_the_limits_of_the_cleaner_are_still_measured(arguments, tmp_path):
    output = run(
        "-m", "bench.cleaner_limits", *arguments, "--json", str(tmp_path / "figures"), "--directory", str(tmp_path)
    )
    figures = json.loads((tmp_path / "figures").read_text())
    assert output
    assert figures
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    if arguments[0] == "keys":
        assert figures["rounds"] > 1
        assert figures["records_after"] == 20_001


def test_a_contest_without_its_requirements_is_reported_and_skipped(tmp_path):
    names = ("kafka encode", "krabka open", "compress gzip", "crc32c 1KiB")
    output = run("-m", "bench.compare", "--tiny", *names, PATH=str(tmp_path), CC="cc")
    assert re.search(r"^kafka encode 100B +needs: a JDK and Maven$", output, re.MULTILINE)
    assert re.search(r"^krabka open partitions +needs: cargo$", output, re.MULTILINE)
    assert re.search(r"^compress gzip 16KiB +needs: a C compiler \(cc\)$", output, re.MULTILINE)
    assert "google-crc32c" in output


@pytest.mark.parametrize("some", ["headers", pytest.param("", marks=pytest.mark.deep, id="all")])
def test_contestants_under_pytest_benchmark(some):
    """The contests themselves run above."""
    options = ("--benchmark-disable", "-p", "no:cacheprovider", "-rs", "-m", "not java and not cargo", "-k", some)
    output = run("-m", "pytest", "bench", *options)
    assert " passed" in output
    for skip in re.findall("^SKIPPED.*", output, re.MULTILINE):
        assert "needs: " in skip


@pytest.mark.java
@pytest.mark.deep
def test_every_contestant_with_kafka_under_pytest_benchmark():
    output = run("-m", "pytest", "bench", "--benchmark-disable", "-p", "no:cacheprovider", "-m", "java", "-rs")
    if needs := re.search(r"needs: .*", output):
        pytest.skip(needs[0])
    assert " passed" in output


@pytest.mark.cargo
@pytest.mark.deep
def test_every_contestant_with_krabka_under_pytest_benchmark():
    output = run("-m", "pytest", "bench", "--benchmark-disable", "-p", "no:cacheprovider", "-m", "cargo", "-rs")
    if needs := re.search(r"needs: .*", output):
        pytest.skip(needs[0])
    assert " passed" in output


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path.stem, marks=() if path.stem == "crc32c" else pytest.mark.deep)
        for path in sorted((ROOT / "bench" / "micro").glob("[a-z]*.py"))
    ],
)
def test_micro_benchmarks_run(script):
    output = run("-m", f"bench.micro.{script}", "--debug-single-value")
    assert "klog" in output


def test_memory_of_partitions_and_segments():
    output = run("-m", "bench.memory", "--partitions", "3", "--segments", "20").splitlines()
    assert [line.split("  ")[0] for line in output] == [
        "a partition, opened",
        "a partition, after an append",
        "a segment, opened",
        "a segment, after it was read",
    ]
    assert all("resident bytes" in line and "descriptors" in line for line in output)


def test_memory_of_a_broker():
    output = run("-m", "bench.broker_memory", "--connections", "20", "--without-kafka")
    assert re.fullmatch(r"klog broker +[0-9.]+ MiB idle +[0-9.]+ MiB with 20 connections, +-?\d+ bytes each\n", output)


@pytest.mark.parametrize(
    "name",
    [  # a session of a thousand partitions takes ten seconds
        pytest.param(name, marks=pytest.mark.deep if name.startswith("session") else ())
        for name in broker_contests.SCENARIOS
    ],
)
def test_the_work_of_the_contests_of_brokers(name, tmp_path):
    """Only klog's contests: the results are checked."""
    prepare, _, _, _ = broker_contests.SCENARIOS[name]
    broker = broker_peers.KlogBroker(tmp_path)
    try:
        with broker_peers.Client(broker.address) as client:
            work = prepare(client, 3)
            assert broker_peers.cost(broker, work) > 0
    finally:
        broker.close()


def test_an_unknown_name_lists_the_contests():
    done = subprocess.run(
        [sys.executable, "-m", "bench.compare", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "encode 100B" in done.stderr


@pytest.mark.deep
def test_a_contest_is_recorded_and_drawn(tmp_path: Path) -> None:
    arguments = ("-m", "bench.profiling", "decode 100B", "--tiny", "--seconds", "2", "--out", str(tmp_path))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if "needs: perf" in done.stdout:
        pytest.skip("needs: perf")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "klog.record" in done.stdout
    drawn = (tmp_path / "decode-100b.svg").read_text()
    assert "kl_" in drawn
    assert ".pyx:" in drawn or "klog.record._" in drawn


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK")
def test_spark_is_still_compared(tmp_path):
    saved = tmp_path / "figures"
    printed = run("-m", "bench.spark", str(tmp_path), "--tiny", "--without", "connector", "--save", str(saved))
    figures = json.loads(saved.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    contestants = {row["contestant"] for row in figures["rows"]}
    assert {'format("klog")', "klog.spark.scan", "view=batches", "klog.spark.table", "Parquet"} <= contestants
    assert {row["test"] for row in figures["rows"]} >= {"count()", "write keys and values", "trigger of 1,000 rows"}
    assert all(contestant in printed for contestant in contestants)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK")
def test_the_libraries_that_read_tables_agree():
    printed = run("-m", "bench.tables", "--rows", "3000", "--rounds", "1")
    assert "3,000 records" in printed and len(re.findall(r"\| .* \| [\d,]+ ms \(", printed)) == 3
