"""Requests and responses over the loopback: klog.network beside asyncio and uvloop, in processor seconds of the server.

Each server is a process of its own, and one blocking client sends requests to one after the other. Echoes: 100 bytes,
one or 16 in flight. Slices: 1 MiB of a file in the page cache.
"""

from __future__ import annotations

import importlib.util
import random
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from bench.child import Child
from bench.contest import Contest, Contestant, Factory

_FILE = 8 << 20
_SLICE = 1 << 20


class _Peer:
    """A server and a connection to it."""

    def __init__(self, kind: str, file: Path) -> None:
        self.child = Child(kind, [sys.executable, "-m", "bench.network_servers", kind, str(file)])
        self.sock = socket.create_connection(("127.0.0.1", self.child.ask("port").records))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 21))

    def exchange(self, requests: bytes, size: int) -> memoryview:
        """Send requests, and receive and return responses of `size` bytes in all."""
        self.sock.sendall(requests)
        got = 0
        while got < size:
            part = self.sock.recv_into(self._buffer[got:])
            assert part, "the server has closed the connection"
            got += part
        return self._buffer[:size]

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the processor seconds of the server during this work."""
        before = self.child.ask("cpu").seconds
        work()
        return self.child.ask("cpu").seconds - before

    def close(self) -> None:
        self.sock.close()
        self.child.close()


def _kinds() -> list[str]:
    """Return the kinds of servers, the peer last."""
    others = ["uvloop"] if importlib.util.find_spec("uvloop") else []
    return ["klog", "klog-threads", *others, "asyncio"]


def _contest(name: str, requests: bytes, expected: bytes, count: int, rounds: int, file: Path) -> Contest:
    """Return a contest. A run sends `requests` (`count` of them) `rounds` times, and waits for the responses each
    time."""
    peers = {kind: _Peer(kind, file) for kind in _kinds()}

    def run(peer: _Peer) -> None:
        for _ in range(rounds):
            peer.exchange(requests, len(expected))

    def check() -> None:
        for kind, peer in peers.items():
            assert peer.exchange(requests, len(expected)) == expected, kind

    def close() -> None:
        for peer in peers.values():
            peer.close()

    def contestant(kind: str) -> Contestant:
        peer = peers[kind]
        return Contestant(kind, lambda: peer.seconds(lambda: run(peer)), own_clock=True)

    contestants = tuple(map(contestant, peers))
    size = (len(requests) + len(expected)) * rounds
    return Contest(name, count * rounds, size, contestants, check, close)


def _echo(in_flight: int) -> Factory:
    def make(tiny: bool, folder: Path) -> Contest:
        (folder / "file").write_bytes(b"x")
        frames = (struct.pack(">i", 100) + bytes(100)) * in_flight
        rounds = 5 if tiny else 3_200 // in_flight
        return _contest(f"network echo {in_flight}", frames, frames, in_flight, rounds, folder / "file")

    return make


def _slices(tiny: bool, folder: Path) -> Contest:
    data = random.Random(5).randbytes(_FILE)
    (folder / "file").write_bytes(data)
    request = struct.pack(">iii", 8, 4097, _SLICE)
    expected = struct.pack(">i", _SLICE) + data[4097 : 4097 + _SLICE]
    return _contest("network slice 1MiB", request, expected, 1, 2 if tiny else 50, folder / "file")


FACTORIES: dict[str, Factory] = {
    "network echo 1": _echo(1),
    "network echo 16": _echo(16),
    "network slice 1MiB": _slices,
}
