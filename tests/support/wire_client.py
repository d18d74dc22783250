"""A client of Kafka's protocol for tests: one request at a time, each version of each API."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from klog.network import FileSlice
from klog.protocol import ApiKey, decode_response, encode_request, messages
from tests.support.patience import PATIENCE


class WireClient:
    """A connection to host:port."""

    def __init__(self, address: str, client_id: str = "test") -> None:
        host, _, port = address.rpartition(":")
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, api: ApiKey, version: int, request: Any) -> int:
        """Send a request. Returns its correlation id."""
        self._last += 1
        parts = encode_request(api, version, self._last, self.client_id, request)
        assert not any(isinstance(part, FileSlice) for part in parts)
        self.socket.sendall(b"".join(parts))
        return self._last

    def receive(self, api: ApiKey, version: int) -> Any:
        """The next response."""
        correlation_id, response = decode_response(api, version, self.frame())
        assert correlation_id <= self._last
        return response

    def frame(self) -> bytes:
        """The next frame without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise ConnectionError("closed by the broker")
            found += part
        return found

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without sending anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request of these fields, and return its response."""
        self.send(api, version, getattr(messages, api.message).Request(**fields))
        return self.receive(api, version)
