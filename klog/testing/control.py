"""Control of a TestBroker over HTTP and JSON, for tests in other languages. docs/testing.md has the requests.

Each request and response is one object of JSON. An error is {"error": the class, "message": the text}, with status 400
for an invalid request, 404 for what does not exist, 408 after a timeout, 409 in the wrong state.

The server listens on 127.0.0.1 alone, and all paths begin with a secret of the run, so that neither other users of the
machine nor pages in a browser control the broker; requests of pages, which have an Origin or another Host, are refused.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from klog import arguments
from klog.errors import KlogError
from klog.logger import logger_of
from klog.shown import to_json
from klog.testing.control_calls import Calls, NotFound

if TYPE_CHECKING:
    from klog.testing.controlled import Controlled

_HOST = "127.0.0.1"
_BODY_BYTES_MAX = 64 << 20
_IDLE_SECONDS = 60
_log = logger_of("testing")


class Control:
    """The server. Any thread. port 0: a free one. Raises OSError for a port that is taken."""

    def __init__(self, broker: Controlled, port: int = 0) -> None:
        self._secret = secrets.token_urlsafe(12)
        self._server = _Server((_HOST, arguments.whole("control_port", port, 0, 65535)), _Handler)
        self._server.serve(Calls(broker), self._secret)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="klog-test-control", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where requests go: a path, such as /faults, is added to it."""
        return f"http://{_HOST}:{self._server.server_address[1]}/{self._secret}"

    def close(self) -> None:
        """Accept no more requests, also on connections that are open. Those that are being handled end. A second call
        does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.end_connections()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def serve(self, calls: Calls, secret: str) -> None:
        """What the requests of all connections need."""
        self.calls, self.secret = calls, secret
        self._connections: set[socket.socket] = set()
        port = self.server_address[1]
        self.hosts = (f"{_HOST}:{port}", f"localhost:{port}")

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Let the threads of connections end: a client may keep one open that it does not use."""
        for each in list(self._connections):
            with suppress(OSError):  # it has just ended
                each.shutdown(socket.SHUT_RD)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone before its response ends its connection, and writes no traceback."""
        if isinstance(sys.exc_info()[1], OSError):
            _log.debug("event=control_connection_ended", exc_info=True)
        else:
            _log.error("event=control_connection_failed", exc_info=True)


class _Refused(Exception):
    """A request that is not a call. status: of the response."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True

    def do_GET(self) -> None:  # the names are http.server's
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Not one line for each request."""

    def _answer(self) -> None:
        try:
            status, found = HTTPStatus.OK, self._call()
        except Exception as error:
            status = _status_of(error)
            if status is HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.error("event=control_failed path=%s", self.path, exc_info=error)
            found = {"error": type(error).__name__.lstrip("_"), "message": str(error)}
        self._send(status, found)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The response to what http.server refuses itself: another method, a request line that is none."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(status, {"error": _Refused.__name__.lstrip("_"), "message": message or status.phrase})

    def _send(self, status: HTTPStatus, found: dict[str, Any]) -> None:
        data = to_json(found).encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _call(self) -> dict[str, Any]:
        body = self._body()  # first: what is not read would be the next request
        if self.headers.get("Host") not in self.server.hosts or self.headers.get("Origin") is not None:
            raise _Refused(HTTPStatus.FORBIDDEN, "a request of a web page, or for another host")
        parts = urlsplit(self.path)
        _, given, *names = [unquote(each) for each in parts.path.split("/")] + [""] * (parts.path.count("/") < 1)
        if not hmac.compare_digest(given.encode(), self.server.secret.encode()):
            raise NotFound("the path does not begin with the secret of the URL that was printed")
        call = self.server.calls.find(self.command, tuple(filter(None, names)))
        return call(dict(parse_qsl(parts.query)), body)

    def _body(self) -> dict[str, Any]:
        size = self.headers.get("Content-Length", "0")
        if not size.isdecimal() or self.headers.get("Transfer-Encoding") is not None:
            self.close_connection = True
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a Content-Length expected")
        if int(size) > _BODY_BYTES_MAX:
            self.close_connection = True
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{size} bytes: at most {_BODY_BYTES_MAX}")
        data = self.rfile.read(int(size))
        if not data:
            return {}
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise ValueError("the body is not JSON") from None
        if not isinstance(found, dict):
            raise arguments.wrong_type("the body", found, "an object of JSON")
        return found


def _status_of(error: Exception) -> HTTPStatus:
    if isinstance(error, _Refused):
        return error.status
    if isinstance(error, NotFound | FileNotFoundError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, TimeoutError):
        return HTTPStatus.REQUEST_TIMEOUT
    if isinstance(error, RuntimeError | FileExistsError):
        return HTTPStatus.CONFLICT
    if isinstance(error, ValueError | TypeError | KlogError):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.INTERNAL_SERVER_ERROR
