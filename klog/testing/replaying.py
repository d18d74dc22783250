"""replay(): sends recorded requests to a broker, and returns its responses.

R1  the requests of a connection are sent in their order, each after the response to the one before
R2  connections do not wait for each other for long: a response that waits, as of a Fetch or a JoinGroup, is read later
R3  the bytes are those of the recording: what the broker of then gave out (member ids, producer ids, sessions, ids of
    topics) is not known to another broker, unless it has a snapshot or a copy of that directory
"""

from __future__ import annotations

import select
import socket
import struct
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.clock import SystemClock
from klog.errors import CorruptData, CorruptFrame, UnsupportedVersion
from klog.protocol import ApiKey, decode_request, decode_response
from klog.testing.recording import recorded
from klog.values import NamedTuple

if TYPE_CHECKING:
    import os

    from klog.protocol import Message
    from klog.protocol import Request as DecodedRequest
    from klog.testing.recording import Recorded

_GRACE_SECONDS = 0.02
_FRAME_BYTES_MAX = 1 << 30
_SIZE = struct.Struct(">i")
_ERROR, _UNSUPPORTED = slice(4, 6), b"\x00\x23"  # of ApiVersions, whose response then has version 0


class Replayed(NamedTuple):
    """One request that was sent. response: None for acks=0, and if the broker has closed the connection: then is_closed
    is true."""

    connection: int
    api: ApiKey
    version: int
    client_id: str
    request: Message
    response: Message | None
    is_closed: bool


def replay(
    path: str | os.PathLike[str], bootstrap_servers: str, speed: float | None = None, *, timeout: float = 30.0
) -> list[Replayed]:
    """Send the requests of a file that TestBroker(record=path) has written. Returns them with their responses, in the
    order of the file.

    bootstrap_servers: the first address gets all, without TLS and SASL. speed: 1 for the pauses of the recording, 2 for
    half of them, None for none. timeout: seconds for one response. Raises CorruptData and NewerFormat for the file,
    ConnectionError, TimeoutError, OSError.
    """
    host, _, port = arguments.text("bootstrap_servers", bootstrap_servers).split(",")[0].rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"bootstrap_servers={bootstrap_servers!r}: host:port expected")
    if speed is not None and (not isinstance(speed, int | float) or isinstance(speed, bool) or not speed > 0):
        raise ValueError(f"speed={speed!r}: a number above 0 expected, or None")
    path, timeout = arguments.path("path", path), arguments.some_seconds("timeout", timeout)
    address = host.strip("[]"), int(port)
    connections: dict[int, _Connection] = {}
    found: list[Replayed] = []
    clock = SystemClock()
    began = clock.monotonic()
    try:
        for each in recorded(path):
            request = _decoded(path, each)
            if speed is not None:
                clock.sleep(max(0.0, began + each.ms / 1000 / speed - clock.monotonic()))
            connection = connections.get(each.connection)
            if connection is None:
                connection = connections[each.connection] = _Connection(address, timeout)
            connection.finish(found)
            found.append(
                Replayed(
                    each.connection, request.api, request.version, request.client_id or "", request.message, None, False
                )
            )
            connection.send(each.frame, request, len(found) - 1)
            if speed is None and connection.is_readable(_GRACE_SECONDS):
                connection.finish(found)
        for connection in connections.values():
            connection.finish(found)
    finally:
        for connection in connections.values():
            connection.close()
    return found


def _decoded(path: str | os.PathLike[str], each: Recorded) -> DecodedRequest:
    try:
        return decode_request(each.frame)
    except (CorruptFrame, UnsupportedVersion) as error:
        text = f"a recorded request cannot be decoded: {error}"
        raise CorruptData(text, path=path, position=each.position) from None


class _Connection:
    """One connection, with at most one request that has no response yet. One thread."""

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._waiting: tuple[DecodedRequest, int] | None = None

    def send(self, frame: bytes, request: DecodedRequest, place: int) -> None:
        """Send a request. place: of its result."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, self._timeout)
        try:
            self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        except ConnectionError:
            pass  # the broker has closed it: reading shows that
        self._waiting = request, place

    def is_readable(self, seconds: float) -> bool:
        """Is there a response, now or soon?"""
        if self._waiting is None or self._socket is None or _has_no_response(self._waiting[0]):
            return False
        return bool(select.select([self._socket], [], [], seconds)[0])

    def finish(self, found: list[Replayed]) -> None:
        """Read the response to the request that has none yet."""
        if self._waiting is None:
            return
        (request, place), self._waiting = self._waiting, None
        if _has_no_response(request):
            return
        frame = self._frame()
        if frame is None:
            found[place] = found[place]._replace(is_closed=True)
            self.close()
            return
        is_old = request.api is ApiKey.API_VERSIONS and frame[_ERROR] == _UNSUPPORTED
        _, response = decode_response(request.api, 0 if is_old else request.version, frame)
        found[place] = found[place]._replace(response=response)

    def _frame(self) -> bytes | None:
        """The next frame; None if the broker has closed the connection."""
        size = self._exactly(_SIZE.size)
        if size is None:
            return None
        (length,) = _SIZE.unpack(size)
        if not 0 <= length <= _FRAME_BYTES_MAX:
            raise CorruptFrame(f"a response of {length} bytes")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes | None:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Close it. The next request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _has_no_response(request: Any) -> bool:
    return request.api is ApiKey.PRODUCE and request.message.acks == 0
