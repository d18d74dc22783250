"""kcat, as shell scripts call it."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from klog.protocol import ApiKey, messages
from tests.clients.servers import Server
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

T0 = 1_700_000_000_000


class Kcat:
    """Runs the program against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str, lines: str = "") -> str:
        """Run it, and return its standard output. It must succeed."""
        command = ["kcat", "-b", self._bootstrap, *arguments]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def metadata(self, topic: str) -> Any:
        return json.loads(self("-L", "-J", "-t", topic))

    def produce(self, topic: str, *lines: str, options: tuple[str, ...] = ()) -> None:
        self("-P", "-t", topic, "-K:", *options, lines="".join(f"{line}\n" for line in lines))


@pytest.fixture
def kcat(server: Server) -> Kcat:
    if shutil.which("kcat") is None:
        pytest.skip("needs: kcat")
    return Kcat(server.bootstrap)


@pytest.fixture
def topic(server: Server, name: str) -> str:
    """A new topic with one partition."""
    Topic = messages.CreateTopics.Request.Topic
    with WireClient(server.bootstrap) as client:
        asked = [Topic(name=name, num_partitions=1, replication_factor=1)]
        assert client.call(ApiKey.CREATE_TOPICS, 5, topics=asked, timeout_ms=60_000).topics[0].error_code == 0
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_with_keys_and_headers_are_printed_in_a_format(kcat: Kcat, topic: str, codec: str) -> None:
    options = ("-H", "trace=1", "-H", "empty=", "-p", "0", "-z", codec)
    kcat.produce(topic, "a:one", "b:two", "a:", options=options)
    found = kcat("-C", "-t", topic, "-e", "-q", "-f", "%t/%p@%o %k=%s (%S) %h\\n")
    assert found.splitlines() == [
        f"{topic}/0@0 a=one (3) trace=1,empty=",
        f"{topic}/0@1 b=two (3) trace=1,empty=",
        f"{topic}/0@2 a= (0) trace=1,empty=",
    ]


def test_records_as_json(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, "k:v", options=("-p", "0"))
    (line,) = kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines()
    found = json.loads(line)
    assert (found["topic"], found["partition"], found["offset"]) == (topic, 0, 0)
    assert (found["key"], found["payload"], found["tstype"]) == ("k", "v", "create")


def test_a_range_of_offsets_from_either_end(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, *[f"k:{number}" for number in range(10)], options=("-p", "0"))
    show = ("-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%s ")
    assert kcat(*show, "-o", "7").split() == ["7", "8", "9"]
    assert kcat(*show, "-o", "-2").split() == ["8", "9"]
    assert kcat(*show, "-o", "beginning", "-c", "3").split() == ["0", "1", "2"]
    assert kcat(*show, "-o", "end").split() == []


def test_metadata_as_json(kcat: Kcat, server: Server, topic: str) -> None:
    kcat.produce(topic, "k:v")
    found = kcat.metadata(topic)
    assert [broker["name"] for broker in found["brokers"]] == [server.bootstrap]
    broker = found["brokers"][0]["id"]
    assert found["controllerid"] == broker
    (described,) = found["topics"]
    assert described["topic"] == topic
    partitions = [
        {"partition": 0, "leader": broker, "replicas": [{"id": broker}], "isrs": [{"id": broker}]},
    ]
    assert described["partitions"] == partitions


def test_offsets_by_timestamp(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, "k:v", "k:w", options=("-p", "0"))
    first, last = map(int, kcat("-C", "-t", topic, "-e", "-q", "-f", "%T ").split())
    for asked, offset in ((0, 0), (first, 0), (last + 1, -1), (-2, 0), (-1, 2)):
        assert kcat("-Q", "-t", f"{topic}:0:{asked}").split() == [topic, "[0]", "offset", str(offset)], asked


def test_a_group_resumes_at_its_committed_offset(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, *[f"k:{number}" for number in range(5)], options=("-p", "0"))
    show = ("-G", f"group-{topic}", "-q", "-X", "auto.offset.reset=earliest", "-f", "%s ")
    assert kcat(*show, "-c", "3", topic).split() == ["0", "1", "2"]
    assert kcat(*show, "-e", topic).split() == ["3", "4"]
    kcat.produce(topic, "k:5", options=("-p", "0"))
    assert kcat(*show, "-e", topic).split() == ["5"]


def test_the_records_of_a_transaction_are_read(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, "a:1", "b:2", options=("-p", "0", "-X", f"transactional.id=id-{topic}"))
    found = kcat("-C", "-t", topic, "-e", "-q", "-X", "isolation.level=read_committed", "-f", "%o=%s ")
    assert found.split() == ["0=1", "1=2"]
