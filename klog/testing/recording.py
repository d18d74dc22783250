"""Requests in a file, to send them again: what clients have asked of a TestBroker.

    line 1        {"klog_requests": 1}                               1: the version of the format
    other lines   {"ms": 12, "connection": 1, "client_id": "billing", "api": "PRODUCE", "version": 9, "frame": "..."}

ms: since the recording began. connection: a number from 1 on. frame: the request as it arrived, with its header and
without its size, in base64.

Requests with secrets are left out: the exchange of SASL, and changes of users' credentials.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.clock import SystemClock
from klog.errors import CorruptData, NewerFormat
from klog.protocol import ApiKey
from klog.shown import to_json
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klog.broker.context import RequestContext

VERSION = 1
_HEADER = "klog_requests"
_SECRET = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS))
_FRAME_BYTES_MAX = 104_857_600  # socket.request.max.bytes
_LINE_BYTES_MAX = _FRAME_BYTES_MAX * 4 // 3 + 100_000


class Recorded(NamedTuple):
    """One request. position: of its line in the file."""

    ms: int
    connection: int
    frame: bytes
    position: int


class Recorder:
    """A gate that lets all requests in, and writes them. Any thread. path: a new file. Raises FileExistsError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._lock = threading.Lock()  # guards the two below
        self._connections: dict[str, int] = {}
        # Without a buffer, which a forked child that exits would write again.
        self._file = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
        self._write({_HEADER: VERSION})

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        """Write the request."""
        if context.api in _SECRET:
            return True
        frame = base64.b64encode(context.frame).decode()
        with self._lock:
            if self._file.closed:
                return True
            number = self._connections.setdefault(context.connection.id, len(self._connections) + 1)
            self._write(
                {
                    "ms": int((self._clock.monotonic() - self._began) * 1000),
                    "connection": number,
                    "client_id": context.client_id,
                    "api": context.api.name,
                    "version": context.version,
                    "frame": frame,
                }
            )
        return True

    def close(self) -> None:
        """Record no more. A second call does nothing."""
        with self._lock:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        left = memoryview(to_json(line).encode(errors="replace") + b"\n")
        while left:
            left = left[self._file.write(left) :]


def recorded(path: str | os.PathLike[str]) -> Iterator[Recorded]:
    """The requests in a file, in their order. Raises CorruptData, NewerFormat, OSError."""
    with open(path, "rb") as file:
        _check_header(path, file.readline(_LINE_BYTES_MAX))
        while True:
            position = file.tell()
            line = file.readline(_LINE_BYTES_MAX)
            if not line:
                return
            yield _parsed(path, position, line)


def _check_header(path: str | os.PathLike[str], line: bytes) -> None:
    try:
        version = arguments.whole(_HEADER, _object(line)[_HEADER], 1)
    except (ValueError, TypeError, KeyError):
        raise CorruptData(
            "no file of recorded requests: its first line is another one; name a file that record= has written",
            path=path,
            position=0,
        ) from None
    if version > VERSION:
        raise NewerFormat(
            f"{os.fspath(path)}: version {version} of recorded requests; this klog knows {VERSION}: upgrade klog"
        )


def _parsed(path: str | os.PathLike[str], position: int, line: bytes) -> Recorded:
    try:
        if not line.endswith(b"\n"):
            raise ValueError("the line has no end")
        found = _object(line)
        frame = base64.b64decode(arguments.text("frame", found["frame"]), validate=True)
        if not 8 <= len(frame) <= _FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {len(frame)} bytes")
        ms = arguments.whole("ms", found["ms"], 0)
        return Recorded(ms, arguments.whole("connection", found["connection"], 1), frame, position)
    except KeyError as error:
        raise CorruptData(f"a recorded request without {error}", path=path, position=position) from None
    except (ValueError, TypeError) as error:
        raise CorruptData(f"a recorded request is invalid: {error}", path=path, position=position) from None


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise arguments.wrong_type("a line", found, "an object of JSON")
    return found
