"""klog handover"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import klog
from tests.cli.test_verbs import ok, ok_json, run
from tests.support.golden import HOME, file_tree


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("events", 2, config={"retention.ms": -1})
    return tmp_path / "data"


def test_it_prints_what_it_has_written_and_the_command(data: Path, tmp_path: Path) -> None:
    planned = ok("handover", data, "--dry-run")
    assert not (data / "meta.properties").exists() and f"would write {data / 'meta.properties'}" in planned
    printed = ok("handover", data)
    assert "events" in printed and "retention.ms=-1" in printed
    assert f"wrote {data / 'meta.properties'}" in printed
    assert f"start it: bin/kafka-server-start.sh {tmp_path / 'data.server.properties'}" in printed
    assert "nothing has changed" in ok("handover", data)


def test_json_has_the_report(data: Path, tmp_path: Path) -> None:
    options = ("--node-id", 3, "--listener", "h:1", "--listener", "SSL://h:2", "--controller-listener", "h:3")
    found = ok_json("handover", data, *options, "--kafka-version", "4.3", "--properties", tmp_path / "p")
    assert found.keys() == {
        *("path", "dry_run", "cluster_id", "node_id", "kafka_version", "features", "next_producer_id", "topics"),
        *("records", "changed", "server_properties", "properties", "command", "warnings"),
    }
    assert (found["node_id"], found["kafka_version"], found["server_properties"]) == (3, "4.3", str(tmp_path / "p"))
    assert "listeners=PLAINTEXT://h:1,SSL://h:2,CONTROLLER://h:3\n" in (tmp_path / "p").read_text()


def test_the_properties_can_be_printed_alone(data: Path, tmp_path: Path) -> None:
    result = run("handover", data, "--properties", "-")
    assert result.stdout.startswith("# Written by klog handover.\nprocess.roles=broker,controller\n")
    assert "start it" in result.stderr and "start it" not in result.stdout
    assert not (tmp_path / "data.server.properties").exists()


def test_errors_have_their_exit_codes(data: Path) -> None:
    for wrong in (("--kafka-version", "3"), ("--listener", "x"), ("--cluster-id", "x"), ("--adopt", "--node-id", "2")):
        assert run("handover", data, *wrong).exit_code == 2, wrong
    with klog.open(data):
        assert run("handover", data).exit_code == 4
    (data / ".kafka_cleanshutdown").unlink()
    result = run("handover", data)
    assert result.exit_code == 1 and "not closed cleanly" in result.stderr
    assert json.loads(run("handover", data, "--json").stdout)["error"]["type"] == "HandoverRefused"


def test_adopt_takes_a_brokers_directory_over(tmp_path: Path) -> None:
    data = Path(shutil.copytree(HOME / "internal" / "logdir", tmp_path / "data"))
    before = file_tree(data)
    assert "dry run; 3 topics" in ok("handover", "--adopt", data, "--dry-run") and file_tree(data) == before
    printed = ok("handover", "--adopt", data)
    assert "clicks" in printed and "klog-topics.json written; 3 topics, next producer id 1000" in printed
    assert ok_json("handover", "--adopt", data)["changed"] is False
