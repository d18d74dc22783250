"""The cost of a request and of a connection: system calls, and memory."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.syscalls import count_syscalls

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys
from klog.clock import SystemClock
from klog.network import Listener, NetworkConfig
from klog.network._loop import Loop
from klog.network._pool import MemoryPool
from klog.network._queue import RequestQueue
from klog.network.notices import Notices
from tests.support.network import Inline, frame
from tests.support.sockets import tcp_pair

groups, together = map(int, sys.argv[1:])
ours, theirs = tcp_pair()
child = os.fork()
if child == 0:
    ours.close()
    request = frame(b"x" * 100) * together
    for _ in range(groups):
        theirs.sendall(request)
        left = len(request)
        while left:
            left -= len(theirs.recv(left))
    os._exit(0)
theirs.close()
ours.setblocking(False)
clock = SystemClock()
loop = Loop(0, NetworkConfig(), MemoryPool(0, clock), Inline(), RequestQueue(5), Notices(clock), clock,
            lambda listener, peer: loop.stop(), lambda: None)
loop.connect(ours, Listener(), ("x", 1), 0, None)
loop.run()
os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("together", "most"), [(1, 3.0), (16, 3 / 16)])
def test_system_calls_of_a_small_request(together: int, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """epoll_wait, recvfrom, sendmsg; pipelined requests share them. Measured as the difference of two runs.

    A busy machine adds calls, once almost one a request: the fewest of three runs count.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    costs = []
    for _ in range(3):
        few, many = (count_syscalls(SCRIPT, str(groups), str(together)) for groups in (100, 600))
        costs.append((many - few) / 500 / together)
        if costs[-1] <= most * 1.25:  # a call more would be a third; the interpreter makes a few
            return
    raise AssertionError(f"system calls a request: {costs}")


FULL = """
import os, socket, sys
from klog.clock import SystemClock
from klog.disk import RealFiles
from klog.network import FileSlice, Listener, NetworkConfig
from klog.network._loop import Loop
from klog.network._pool import MemoryPool
from klog.network._queue import RequestQueue
from klog.network.notices import Notices
from tests.support.sockets import tcp_pair

path, is_large, connections = sys.argv[1], sys.argv[2] == "large", int(sys.argv[3])
file = RealFiles().open(path)

class Handler:
    served = 0

    def is_cheap(self, request):
        return True

    def __call__(self, request):
        request.respond(FileSlice(file, 0, 1 << 20) if is_large else b"small")
        self.served += 1
        if self.served == connections:
            loop.stop()

clock = SystemClock()
loop = Loop(0, NetworkConfig(), MemoryPool(0, clock), Handler(), RequestQueue(5), Notices(clock), clock,
            lambda listener, peer: None, lambda: None)
peers = []
for number in range(connections):
    ours, theirs = tcp_pair()
    theirs.sendall(bytes([0, 0, 0, 1, 7]))
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 102_400)
    loop.connect(ours, Listener(), ("x", number), number, None)
    peers.append(theirs)
loop.run()
os._exit(0)
"""


def test_a_full_socket_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sigaction, sendfile, and a sendfile that the socket refuses, instead of the sendmsg of a small response: each that it
    refuses has read 16 pages before. The peers do not read."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    connections = 20
    small, large = (count_syscalls(FULL, str(path), kind, str(connections)) for kind in ("small", "large"))
    assert (large - small) / connections <= 2.2


IDLE = """
from tests.support.network import Client, Inline, serving
from tests.support.resources import resident_bytes
with serving(Inline(), socket_listen_backlog_size=1000) as server:
    warm = [Client(server.port) for _ in range(100)]
    assert all(client.ask(b"x") == b"x" for client in warm)
    before = resident_bytes()
    clients = [Client(server.port) for _ in range(1000)]
    for client in clients:
        assert client.ask(b"x" * 1000) == b"x" * 1000
    print((resident_bytes() - before) // 1000)
    for client in [*warm, *clients]:
        client.sock.close()
"""


def test_bytes_of_an_idle_connection() -> None:
    """Of a thousand; both ends are in a process of their own, and so are the client's Python objects."""
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, cwd=ROOT, check=True)
    assert int(done.stdout) < 4_000


MANY = """
import sys
from tests.support.network import Inline, serving
with serving(Inline(), socket_listen_backlog_size=1000) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
    print(int(open("/proc/self/statm").read().split()[1]) * 4096, server.metrics()["ConnectionCount"], flush=True)
    sys.stdin.readline()
"""


@pytest.mark.deep
def test_ten_thousand_idle_connections_take_at_most_100_mb() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_500:
        pytest.skip("needs: 10,500 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    child = subprocess.Popen([sys.executable, "-c", MANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdin is not None
    assert child.stdout is not None
    clients: list[socket.socket] = []
    try:
        port = int(child.stdout.readline())
        for _ in range(10_000):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"\0\0\0\4ping")
            clients.append(client)
        for client in clients:
            client.settimeout(PATIENCE)
            assert client.recv(8) == b"\0\0\0\4ping"
        child.stdin.write(b"\n")
        child.stdin.flush()
        resident, count = child.stdout.readline().split()
        assert float(count) == 10_000
        assert int(resident) < 100 << 20
        print(f"{int(resident) / 2**20:.1f} MiB resident")
    finally:
        for client in clients:
            client.close()
        child.communicate(b"\n", timeout=PATIENCE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert child.returncode == 0
