"""One request on its way through the broker. Kafka: RequestContext, RequestChannel.Request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.error_responses import error_response
from klog.logger import logger_of
from klog.network import FileSlice
from klog.protocol import ErrorCode, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.request_metrics import ApiMetrics
    from klog.network import Connection
    from klog.network import Request as NetworkRequest
    from klog.protocol import ApiKey, Message
    from klog.protocol import Request as DecodedRequest

_log = logger_of("broker")


class RequestContext:
    """Who sent a request, and how to respond. Any thread. Satisfies klog.security.Context.

    message: the decoded request. client_host: the peer's address after a slash, as Kafka shows it. before_response: a
    function of a gate; the response that it returns is sent, and for None it has completed the request itself. It gets
    None for a request without a response. refusal: a function of a gate from (topic, partition) to the error that a
    Fetch, ShareFetch or ShareAcknowledge has for it, or None.
    received, began, handled: when the request arrived, when its handler was called, and when that returned, 0 before:
    seconds of the monotonic clock. request_bytes: the size of the frame. metrics: of the API. network: the request as
    the network passed it on.
    """

    __slots__ = (
        "_authorize", "_completed", "_request", "api", "before_response", "began", "client_id", "connection", "handled",
        "message", "metrics", "network", "received", "refusal", "request_bytes", "version",
    )  # fmt: skip

    def __init__(
        self,
        network: NetworkRequest,
        request: DecodedRequest,
        metrics: ApiMetrics,
        authorize: Callable[[RequestContext, str, str, str], bool] | None,
        completed: Callable[[RequestContext, Message | None, int], int],
    ) -> None:
        self.api: ApiKey = request.api
        self.version: int = request.version
        self.client_id: str = request.client_id or ""
        self.connection: Connection = network.connection
        self.message: Any = request.message
        self.metrics = metrics
        self.request_bytes = len(network.frame)
        self.received = network.received
        self.began = self.handled = 0.0
        self.before_response: Callable[[Message | None], Message | None] | None = None
        self.refusal: Callable[[str, int], ErrorCode | None] | None = None
        self.network = network
        self._request = request
        self._authorize = authorize
        self._completed = completed

    def __repr__(self) -> str:
        return f"<RequestContext {self.api.message} v{self.version} of {self.client_id!r} at {self.client_host}>"

    @property
    def client_host(self) -> str:
        return f"/{self.connection.peer[0]}"

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def listener(self) -> str:
        name: str = self.connection.listener.name
        return name

    @property
    def completed(self) -> bool:
        """Has the request been completed?"""
        return self.network.completed

    @property
    def frame(self) -> memoryview:
        """The bytes of the request without their size; valid until its handler has returned."""
        return self.network.frame

    def authorized(self, operation: str, resource_type: str, name: str) -> bool:
        """May the principal do this? True without an authorizer."""
        return self._authorize is None or self._authorize(self, operation, resource_type, name)

    def respond(self, response: Message, *, throttle_ms: int = 0) -> None:
        """Send the response; as in Kafka one with UNKNOWN_SERVER_ERROR in place of one that cannot be encoded. Raises
        RuntimeError for a second one."""
        if self.before_response is not None:
            change, self.before_response = self.before_response, None
            changed = change(response)
            if changed is None:
                return
            response = changed
        throttle_ms = self._completed(self, response, throttle_ms)
        request = self._request
        errors: list[int] = []
        try:
            parts = encode_response(request.api, request.version, request.correlation_id, response, errors)
        except Exception as error:
            self.log_failure(error)
            errors = [ErrorCode.UNKNOWN_SERVER_ERROR]
            failed = error_response(self.api, self.version, self.message, ErrorCode.UNKNOWN_SERVER_ERROR)
            parts = encode_response(request.api, request.version, request.correlation_id, failed)
        if errors:
            self.metrics.count_errors(errors)
        if len(parts) > 1:
            parts = [part if type(part) is bytes else _sendable(part) for part in parts]
        self.network.respond(parts, throttle_ms=throttle_ms)

    def log_failure(self, error: Exception) -> None:
        """Log an exception of klog."""
        _log.error(
            "event=request_failed connection=%s api=%s version=%d",
            self.connection.id,
            self.api.message,
            self.version,
            exc_info=error,
        )

    def no_response(self, *, throttle_ms: int = 0) -> None:
        """Complete the request without a response, as Produce with acks=0."""
        if self.before_response is not None:
            change, self.before_response = self.before_response, None
            change(None)
            if self.completed:
                return
        self.network.no_response(throttle_ms=self._completed(self, None, throttle_ms))

    def close(self) -> None:
        """Close the connection, after the responses before."""
        self._completed(self, None, 0)
        self.network.close()

    def respond_in_part(self, response: Message, share: float) -> None:
        """Send the first bytes of the response, and close. For tests of clients."""
        self._completed(self, response, 0)
        request = self._request
        parts = encode_response(request.api, request.version, request.correlation_id, response)
        data = b"".join(part if type(part) is bytes else bytes(part.memory()) for part in parts)
        self.network.refuse_authentication(
            data[: max(1, int(len(data) * share))]
        )  # it closes, which respond() does not

    def respond_in(self, version: int, response: Message) -> None:
        """Send the response in another version than that of the request, as if the broker did not know that one."""
        self.network.respond(self._completed_in(version, response))

    def refuse_authentication(self, response: Message) -> None:
        """Send this response after a delay, then close."""
        self.network.refuse_authentication(self._completed_in(self.version, response))

    def _completed_in(self, version: int, response: Message) -> list[Any]:
        self._completed(self, response, 0)
        errors: list[int] = []
        parts = encode_response(self.api, version, self._request.correlation_id, response, errors)
        self.metrics.count_errors(errors)
        return parts


def _sendable(part: Any) -> Any:
    """A part of a response as klog.network takes it: the result of a fetch becomes a slice of its file."""
    place = getattr(part, "file_range", None)
    return part if place is None else FileSlice(*place())
