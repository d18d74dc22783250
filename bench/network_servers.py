"""A server of frames in a process of its own: python -m bench.network_servers KIND FILE

A request of 8 bytes requests a slice of FILE (position and size, two int32); any other request is echoed. The process
prints its pid, then replies to `port` and `cpu` (its processor seconds so far) on stdin, until stdin is closed.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import threading
import time
from typing import Any

from klog.disk import RealFiles
from klog.network import FileSlice, NetworkConfig, Request, Server


class Handler:
    """The handler of klog's server. inline: requests are handled in the network thread."""

    def __init__(self, path: str, inline: bool) -> None:
        self._file = RealFiles().open(path)
        if inline:
            self.is_cheap = lambda _request: True

    def __call__(self, request: Request) -> None:
        body = request.frame
        if len(body) == 8:
            position, size = struct.unpack(">ii", body)
            request.respond([struct.pack(">i", size), FileSlice(self._file, position, size)])
        else:
            request.respond([struct.pack(">i", len(body)), body])


class Protocol(asyncio.Protocol):
    """The server of asyncio and uvloop: frames are taken from one buffer, echoes of one receive are sent together."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = b""
        self._transport: Any = None
        self._slices: list[asyncio.Task[object]] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data, at, out = self._left + data, 0, []
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            if end - at == 12:
                self._send_slice(*struct.unpack(">ii", data[at + 4 : end]))
            else:
                out.append(data[at:end])
            at = end
        self._left = data[at:]
        if out:
            self._transport.write(b"".join(out))

    def _send_slice(self, position: int, size: int) -> None:
        self._transport.write(struct.pack(">i", size))
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.SelectorEventLoop):
            self._slices = [loop.create_task(loop.sendfile(self._transport, self._file, position, size))]
        else:  # uvloop has no sendfile
            self._transport.write(os.pread(self._file.fileno(), size, position))


def serve_klog(path: str, inline: bool) -> int:
    server = Server(["127.0.0.1:0"], Handler(path, inline), config=NetworkConfig(num_io_threads=2))
    return server.start().port


def serve_loop(path: str, loop: asyncio.AbstractEventLoop) -> int:
    file = open(path, "rb")
    ready: list[int] = []
    started = threading.Event()

    async def serve() -> None:
        server = await loop.create_server(lambda: Protocol(file), "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        started.set()
        await server.serve_forever()

    threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True).start()
    started.wait()
    return ready[0]


def main() -> None:
    kind, path = sys.argv[1:]
    if kind.startswith("klog"):
        port = serve_klog(path, kind == "klog")
    elif kind == "uvloop":
        import uvloop

        port = serve_loop(path, uvloop.new_event_loop())
    else:
        port = serve_loop(path, asyncio.SelectorEventLoop())
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        value = port if line.strip() == "port" else 0
        print(f"{time.process_time()} {value} 0", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
