"""librdkafka: its own tests in quick mode, without those that need no broker. The sources are those in node-rdkafka's
npm package. Each test runs in a process of its own.

Some tests call Kafka's scripts, which are replaced by small scripts that start Kafka's own tools. The suite
librdkafka-848 runs the same tests with group.protocol=consumer in all consumers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.clients.servers import KAFKA_VERSION, Server
from tests.clients.suite.base import Outcome, Outcomes, Run, Suite, command, need
from tests.support.archives import unpack
from tools import kafka_jars

__all__ = ["SUITE", "run_with"]

PACKAGE = "node-rdkafka@3.6.1"
TOGETHER = 3  # tests at the same time; most tests mostly wait
TEST_SECONDS = 240
_TEST = re.compile(r"^\s+_TEST\((\d{4}_\w+),([^)]*)", re.MULTILINE)
_REPLICAS = re.compile(r"(create_topic\w*\([^;]*,) 3((?:, 5000)?\);)")
_STATES: dict[str, Outcome] = {"PASSED": "passed", "SKIPPED": "skipped"}
_SCRIPTS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


def _prepare(folder: Path) -> None:
    need("npm", "gcc", "g++", "make")
    command(["npm", "pack", "--silent", PACKAGE], cwd=folder)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        unpack(tar, folder)
    (folder / "package" / "deps" / "librdkafka").rename(folder / "src")
    shutil.rmtree(folder / "package")
    source = folder / "src"
    options = ["--disable-gssapi", "--disable-curl", "--disable-lz4-ext", "--disable-zstd"]
    options += ["--disable-optimization", "--disable-debug-symbols"]  # it compiles in less time
    command(["./configure", *options], cwd=source)
    _use_one_replica(source / "tests")
    command(["make", "-j2", "libs"], cwd=source)
    command(["make", "-j2", "test-runner"], cwd=source / "tests")
    _write_scripts(folder)


def _use_one_replica(tests: Path) -> None:
    """Some tests create topics with three replicas, but there is only one broker."""
    for path in [*tests.glob("0*.c"), *tests.glob("0*.cpp")]:
        text = path.read_text()
        changed = _REPLICAS.sub(r"\1 1\2", text)
        if changed != text:
            path.write_text(changed)


def _write_scripts(folder: Path) -> None:
    programs = folder / "kafka" / "bin"
    programs.mkdir(parents=True)
    lib = kafka_jars.get(KAFKA_VERSION).lib
    for name, tool in _SCRIPTS.items():
        script = programs / name
        script.write_text(
            f'#!/bin/sh\nexec java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "{lib}/*" {tool} "$@"\n'
        )
        script.chmod(0o755)


def tests_of(source: str) -> list[str]:
    """The tests in test.c that need a broker."""
    return [name for name, flags in _TEST.findall(source) if "TEST_F_LOCAL" not in flags and "MANUAL" not in flags]


def run_with(protocol: str) -> Run:
    """The `run` of a suite with this group protocol in all consumers."""

    def run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
        return _run(folder, server, only, without, log, protocol)

    return run


def _run(
    folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path, protocol: str
) -> Outcomes:
    tests = folder / "src" / "tests"
    chosen = [
        name
        for name in tests_of((tests / "test.c").read_text())
        if name not in without and (not only or any(name.startswith(each) for each in only))
    ]
    logs = log.with_suffix("")
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    log.write_text(f"the output of each test is in {logs}\n")
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(TOGETHER) as pool:
        config = Path(made) / "test.conf"
        config.write_text(f"metadata.broker.list={server.bootstrap}\ntest.topic.random=true\n")
        jobs = [pool.submit(_run_one, folder, name, server, config, logs, protocol) for name in chosen]
        return {name: job.result() for name, job in zip(chosen, jobs, strict=True)}


def _run_one(folder: Path, name: str, server: Server, config: Path, logs: Path, protocol: str) -> Outcome:
    report = config.parent / f"{name}.json"
    environment = {
        "TESTS": name,
        "TEST_REPORT": str(report),
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
        "KAFKA_PATH": str(folder / "kafka"),
        "BROKERS": server.bootstrap,
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder / "src" / part) for part in ("src", "src-cpp")),
    }
    command(
        ["./test-runner", "-Q", "-L"],
        cwd=folder / "src" / "tests",
        log=logs / f"{name}.log",
        env=environment,
        timeout=TEST_SECONDS,
        check=False,
    )
    return outcome(report.read_text(), name) if report.exists() else "failed"


def outcome(report: str, name: str) -> Outcome:
    """The state of a test in the report of its process. A test that the process skipped is not in it."""
    try:
        tests = json.loads(report)["tests"]
    except ValueError:
        return "failed"
    return _STATES.get(tests[name]["state"], "failed") if name in tests else "skipped"


SUITE = Suite(
    "librdkafka",
    PACKAGE,
    _prepare,
    run_with("classic"),
    {
        "auto.create.topics.enable": "true",
        "group.initial.rebalance.delay.ms": 500,  # some tests need two members in the first generation
        "num.partitions": 4,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
)
