"""The costs of requests and of an idle broker: Python frames, system calls, memory, modules. These counts do not depend on
the load of the machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker
from klog.protocol import ApiKey, decode_response, encode_request, messages
from klog.record import encode
from tests.support.frames import frames_of
from tests.support.patience import PATIENCE, until
from tests.support.resources import resident_bytes
from tests.support.syscalls import count_syscalls

ROOT = Path(__file__).resolve().parents[2]
T = 1_700_000_000_000
SESSION_PARTITIONS = 1000
MODULES = 310  # more than a broker imports until it serves clients, with the modules of Python itself


class Sent:
    """A request as the network passes it to the dispatcher, without a socket."""

    release = staticmethod(int)  # native, as the one of the network: it enters no frame

    class connection:  # noqa: N801
        id = "c"
        closed = False
        peer = ("127.0.0.1", 1)
        principal = "User:ANONYMOUS"

        class listener:  # noqa: N801
            name = "PLAINTEXT"

    def __init__(self, api: ApiKey, version: int, message: Any) -> None:
        self.frame = memoryview(b"".join(encode_request(api, version, 1, "c", message)))[4:]
        self.received = 0.0
        self.completed = False
        self.response: Any = None

    def respond(self, parts: list[Any], *, throttle_ms: int = 0) -> None:
        self.completed = True
        self.response = parts

    def measure(self, *_: Any) -> None: ...

    def on_disconnect(self, _callback: Any) -> None: ...


class DirectClient:
    """Sends requests to the dispatcher of a broker, in this thread and without a socket."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._dispatch = broker._serving.dispatcher_of(broker.node_id)  # type: ignore[union-attr]

    def call(self, api: ApiKey, version: int, message: Any) -> Any:
        sent = Sent(api, version, message)
        self._dispatch(sent)  # type: ignore[arg-type]
        if sent.response is None:
            return None
        return decode_response(api, version, b"".join(map(bytes, sent.response))[4:])[1]

    def frames(self, api: ApiKey, version: int, message: Any) -> int:
        """The number of Python frames that one request enters, with the dispatcher's own."""
        sent = Sent(api, version, message)
        found = frames_of(lambda: self._dispatch(sent))  # type: ignore[arg-type]
        # The methods of Sent do not count: in the network they are native.
        return sum(found.values()) - found["respond"] // 2 - found["measure"]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[DirectClient]:
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        broker.topics.create("t", 1)
        yield DirectClient(broker)


def produce(client: DirectClient, topic: str = "t") -> Any:
    Request = messages.Produce.Request
    asked = Request.Partition(index=0, records=encode([(None, b"v", T)]))
    topic_id: Any = client.broker.topics.topic_id(topic)
    return Request(acks=1, timeout_ms=1000, topic_data=[Request.Topic(topic_id=topic_id, partition_data=[asked])])


def fetch(client: DirectClient, topic: str, partitions: range, offset: int = 0, **fields: Any) -> Any:
    Request = messages.Fetch.Request
    asked = [Request.Partition(partition=n, fetch_offset=offset, partition_max_bytes=1 << 20) for n in partitions]
    topic_id: Any = client.broker.topics.topic_id(topic)
    topics = [Request.Topic(topic_id=topic_id, partitions=asked)] if asked else []
    return Request(min_bytes=1, max_bytes=1 << 20, topics=topics, **fields)


def test_frames_of_a_produce_request(client: DirectClient) -> None:
    for _ in range(3):
        client.call(ApiKey.PRODUCE, 13, produce(client))
    assert client.frames(ApiKey.PRODUCE, 13, produce(client)) <= 30


def test_frames_of_a_fetch_with_records(client: DirectClient) -> None:
    client.call(ApiKey.PRODUCE, 13, produce(client))
    request = fetch(client, "t", range(1), session_epoch=-1)
    client.frames(ApiKey.FETCH, 17, request)
    assert client.frames(ApiKey.FETCH, 17, request) <= 46


@pytest.mark.parametrize(("topic", "partitions"), [("t", 1), ("many", SESSION_PARTITIONS)])
def test_frames_of_an_incremental_fetch_do_not_grow_with_its_session(
    client: DirectClient, topic: str, partitions: int
) -> None:
    """Counts a fetch that begins to wait, and the produce request that completes it. The least of six: a scheduled task
    may run in the thread of a request."""
    if topic == "many":
        client.broker.topics.create(topic, partitions)
    first = client.call(ApiKey.FETCH, 17, fetch(client, topic, range(partitions), session_epoch=0))
    assert first.session_id
    waits, completed = [], []
    for epoch in range(1, 7):
        waiting = fetch(
            client, topic, range(1), epoch - 1, session_id=first.session_id, session_epoch=epoch, max_wait_ms=60_000
        )
        waits.append(client.frames(ApiKey.FETCH, 17, waiting))
        assert client.broker.metrics()["PurgatorySize.Fetch"] == 1
        completed.append(client.frames(ApiKey.PRODUCE, 13, produce(client, topic)))
        assert client.broker.metrics()["PurgatorySize.Fetch"] == 0
    assert min(waits) <= 63
    assert min(completed) <= 72


def test_a_fetch_that_does_not_wait_reads_what_has_changed_first(client: DirectClient) -> None:
    client.broker.topics.create("many", SESSION_PARTITIONS)
    first = client.call(ApiKey.FETCH, 17, fetch(client, "many", range(SESSION_PARTITIONS), session_epoch=0))
    frames = []
    for epoch in range(1, 5):
        client.call(ApiKey.PRODUCE, 13, produce(client, "many"))
        at_once = fetch(client, "many", range(1), epoch - 1, session_id=first.session_id, session_epoch=epoch)
        frames.append(client.frames(ApiKey.FETCH, 17, at_once))
    assert min(frames) <= 80


def test_a_fetch_that_times_out_enters_few_frames_for_each_partition(client: DirectClient) -> None:
    client.broker.topics.create("many", SESSION_PARTITIONS)
    first = client.call(ApiKey.FETCH, 17, fetch(client, "many", range(SESSION_PARTITIONS), session_epoch=0))
    assert first.session_id
    frames = [
        client.frames(
            ApiKey.FETCH, 17, fetch(client, "many", range(0), session_id=first.session_id, session_epoch=epoch)
        )
        for epoch in (1, 2)
    ]
    assert frames[1] <= 6 * SESSION_PARTITIONS


def test_frames_of_a_heartbeat_and_of_a_commit(client: DirectClient) -> None:
    """No member sends them, so the counts are those of the code before the group's."""
    heartbeat = messages.Heartbeat.Request(group_id="g", generation_id=1, member_id="m")
    Request = messages.OffsetCommit.Request
    topic = Request.Topic(name="t", partitions=[Request.Partition(partition_index=0, committed_offset=1)])
    commit = Request(group_id="g", topics=[topic])
    for _ in range(3):
        client.call(ApiKey.HEARTBEAT, 4, heartbeat)
        assert client.call(ApiKey.OFFSET_COMMIT, 8, commit).topics[0].partitions[0].error_code == 0
    assert client.frames(ApiKey.HEARTBEAT, 4, heartbeat) <= 20
    assert client.frames(ApiKey.OFFSET_COMMIT, 8, commit) <= 56


SCRIPT = """
import os, sys
from klog.broker import Broker
from klog.clock import SystemClock
from klog.network import Listener, NetworkConfig
from klog.network._loop import Loop
from klog.network._pool import MemoryPool
from klog.network._queue import RequestQueue
from klog.network.notices import Notices
from klog.protocol import ApiKey, encode_request, messages
from klog.record import encode
from tests.support.sockets import tcp_pair

directory, groups, together = sys.argv[1], *map(int, sys.argv[2:])
broker = Broker(directory, listeners=["127.0.0.1:0"])
broker.start()
broker.topics.create("t%d" % groups, 1)
Request = messages.Produce.Request
asked = Request.Partition(index=0, records=encode([(None, b"v", 1700000000000)]))
topic = Request.Topic(topic_id=broker.topics.topic_id("t%d" % groups), partition_data=[asked])
frame = b"".join(encode_request(ApiKey.PRODUCE, 13, 1, "c", Request(acks=1, timeout_ms=1000, topic_data=[topic])))
ours, theirs = tcp_pair()
child = os.fork()
if child == 0:
    ours.close()
    for _ in range(groups):
        theirs.sendall(frame * together)
        for _ in range(together):
            size = int.from_bytes(theirs.recv(4, 0x100), "big")
            theirs.recv(size, 0x100)
    os._exit(0)
theirs.close()
ours.setblocking(False)
clock = SystemClock()
loop = Loop(0, NetworkConfig(), MemoryPool(0, clock), broker._serving.dispatcher_of(broker.node_id), RequestQueue(5), Notices(clock), clock,
            lambda listener, peer: loop.stop(), lambda: None)
loop.connect(ours, Listener(), ("x", 1), 0, None)
loop.run()
os.waitpid(child, 0)
os._exit(0)
"""


@pytest.mark.parametrize(("together", "most"), [(1, 4.0), (16, 1 + 3 / 16)])
def test_system_calls_of_a_produce_request(
    tmp_path: Path, together: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pwrite for each request; one epoll_wait, recvfrom and sendmsg for the requests that arrive together."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    few, many = (
        count_syscalls(SCRIPT, str(tmp_path / str(groups)), str(groups), str(together)) for groups in (50, 350)
    )
    assert (many - few) / 300 / together <= most * 1.25


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of `klog broker`. Its modules are compiled already, as in an installation."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "pyc"))
    command = ["-m", "klog", "broker", str(tmp_path / "data"), "--port", "0", "--json"]
    with broker_process([sys.executable, *command]):
        pass
    return command


@contextmanager
def broker_process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["pid"] == process.pid
        yield process
        process.send_signal(signal.SIGTERM)


def test_resident_bytes_of_an_idle_broker(command: list[str]) -> None:
    with broker_process([sys.executable, *command]) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        until(lambda: "zstandard" in maps.read_text(), 0.05)  # the last of the codecs
        mapped = maps.read_text()
        resident = resident_bytes(process.pid)
    assert resident < 32 << 20
    assert "libcrypto" not in mapped, "3.5 MB that a broker without TLS and SCRAM does not need"


def test_modules_of_a_start(command: list[str]) -> None:
    """Each module adds about 0.15 ms to the start. Modules for requests that may never come are imported with the first
    such request; what opens, recovers and appends to logs, once the broker has printed its address."""
    with broker_process([sys.executable, "-X", "importtime", *command]) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        lines = process.stderr.read().decode().splitlines()
    loaded = [line.split("|")[2].strip() for line in lines if line.startswith("import time:")]
    unused = {"click", "datetime", "hashlib", "inspect", "logging", "ssl", "tempfile", "traceback"}
    assert unused.isdisjoint(loaded)
    assert not [name for name in loaded if name.startswith(("klog.broker.admin", "klog.cleaner"))]
    coordinators = {"klog.coordinator.groups.coordinator", "klog.coordinator.transactions.coordinator"}
    assert coordinators.isdisjoint(loaded)
    served = loaded.index("klog.log.load")  # the first of klog.log.core.load()
    assert {"klog.broker.broker", "klog.manager.manager"} <= {*loaded[:served]}
    assert {"klog.log.log", "klog.segment.segment", "klog.record._leader"} <= {*loaded[served:]}
    assert len({*loaded[:served]}) < MODULES, sorted(loaded[:served])


def test_codecs_are_imported_soon_after_the_start(tmp_path: Path) -> None:
    """A later import could fail, if the process has no file descriptor left by then."""
    script = f"""
import sys, time
import klog
with klog.Broker({str(tmp_path)!r}, listeners=["127.0.0.1:0"]):
    assert "zstandard" not in sys.modules
    until = time.monotonic() + {PATIENCE}
    while not {{"cramjam", "lz4.block", "lz4.frame", "zstandard"}} <= set(sys.modules):
        assert time.monotonic() < until
        time.sleep(0.01)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
