"""Peers that send any bytes, in any pieces, and disconnect at any time: the server still works, and keeps no memory for
them. P7."""

from __future__ import annotations

import contextlib
import random
import socket
import struct

import pytest

from klog.network import Request
from tests.support.network import Client, Inline, echo, ended, frame, serving
from tests.support.patience import until


def any_completion(request: Request) -> None:
    """By the first byte of the request."""
    first = request.frame[0] if len(request.frame) else 0
    if first < 200:
        echo(request)
    elif first < 220:
        request.no_response(throttle_ms=first - 200)
    elif first < 240:
        request.respond(frame(bytes(100_000)))
    elif first < 250:
        request.close()
    else:
        request.refuse_authentication(b"no")


def attack(chance: random.Random, port: int) -> None:
    """One client: it sends whole frames, cut frames, frames with a wrong size, and random bytes. It may not read, and
    disconnects with one of four methods."""
    client = Client(port, receive_buffer=chance.choice([0, 4096]))
    client.sock.settimeout(0.001)
    with contextlib.suppress(OSError):
        for _ in range(chance.randrange(20)):
            body = chance.randbytes(chance.choice([0, 1, 10, 1000, 100_000]))
            prefix = struct.pack(">i", chance.choice([len(body)] * 8 + [len(body) + 1, 0, -1, 2**31 - 1]))
            data = chance.choice([prefix + body, prefix + body, prefix + body[:5], prefix[: chance.randrange(4)], body])
            client.sock.sendall(data)
            if chance.random() < 0.3:
                client.sock.recv(1 << 16)
    with contextlib.suppress(OSError):
        match chance.randrange(3):
            case 0:
                client.reset()
            case 1:
                client.sock.shutdown(socket.SHUT_RDWR)
            case 2:
                client.sock.shutdown(socket.SHUT_WR)
    client.sock.close()


@pytest.mark.parametrize("handled", ["inline", "threads"])
def test_random_attacks(handled: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    limits = {"queued_max_request_bytes": 300_000, "queued_max_requests": 3, "failed_authentication_delay_ms": 1}
    handler = Inline(any_completion) if handled == "inline" else any_completion
    with serving(handler, num_network_threads=2, num_io_threads=2, **limits) as server:
        for _ in range(150):
            attack(chance, server.port)
        until(lambda: ended(server))
        # A handler thread may still have a request of a connection that has ended.
        until(lambda: server.metrics()["RequestQueueSize"] == 0)
        until(lambda: server.metrics()["MemoryPoolAvailable"] == 300_000)
        with Client(server.port) as good:
            assert good.ask(b"\0good") == b"\0good"
