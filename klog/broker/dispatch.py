"""From frames to handlers: decodes a request, calls the handler of its API, and responds. Kafka: KafkaApis.handle.

what is not a request, or of an unknown API or version       the connection is closed, as in Kafka; logged at most
                                                             once a second, whatever peers send
ApiVersions of an unknown version                            error 35, in version 0 of the response
an exception of a handler                                    logged; the response has error -1 where it can have
                                                             one, else the connection is closed
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from klog.broker.api_versions import unknown_version
from klog.broker.context import RequestContext
from klog.broker.error_responses import error_response
from klog.broker.request_metrics import RequestMetrics
from klog.errors import CorruptFrame, UnsupportedVersion
from klog.logger import logger_of
from klog.network.notices import Notices
from klog.protocol import ApiKey, ErrorCode, decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.broker.api_versions import Release
    from klog.clock import Clock
    from klog.network import Connection
    from klog.network import Request as NetworkRequest
    from klog.protocol import Message

    Handle = Callable[[RequestContext, Any], Message | None]

_log = logger_of("broker")
_CHEAP_BYTES = 1 << 14


class Gate(Protocol):
    """A check before the handlers: authentication, or the faults of a test."""

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        """Whether the request may be handled now. False: the gate has completed the request, or will, or calls go_on()
        when it may be handled."""


class Dispatcher:
    """The handler of a klog.network.Server. Any thread.

    slow: the APIs that may wait for a disk; the others are handled in the network thread. throttle: (context, seconds
    of a thread's time) -> how long the client waits, in ms. connection_delay: of an address, see klog.network.Handler.
    admits: may a connection make requests of an API now? If not, their bytes are not read, and the first gate refuses
    them. release: the one that this broker passes for.
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handle],
        *,
        slow: frozenset[ApiKey],
        clock: Clock,
        authorize: Callable[[RequestContext, str, str, str], bool] | None = None,
        throttle: Callable[[RequestContext, float], int] | None = None,
        connection_delay: Callable[[str], int] | None = None,
        admits: Callable[[Connection, ApiKey], bool] | None = None,
        gates: tuple[Gate, ...] = (),
        metrics: RequestMetrics | None = None,
        release: Release | None = None,
    ) -> None:
        self._handlers = dict(handlers)
        self._slow = frozenset(int(api) for api in slow)
        self._clock = clock
        self._authorize = authorize
        self._throttle = throttle
        self.connection_delay = connection_delay
        self._admits = admits
        self._gates = gates
        self._release = release
        self.metrics = metrics or RequestMetrics()
        self._notices = Notices(clock, _log)

    def is_cheap(self, request: NetworkRequest) -> bool:
        """Is this request handled in the network thread? A large one takes so long that others would wait. Produce does
        not: its bytes are not decoded one by one."""
        frame = request.frame
        size = len(frame)
        if size < 2:
            return True
        api = frame[0] << 8 | frame[1]
        return api not in self._slow and (size <= _CHEAP_BYTES or api == ApiKey.PRODUCE)

    def __call__(self, request: NetworkRequest) -> None:
        """Handle a request."""
        try:
            admits = self._admits
            decoded = decode_request(request.frame, None if admits is None else partial(admits, request.connection))
        except UnsupportedVersion as error:
            self._unsupported(request, error)
            return
        except CorruptFrame as error:
            self._notices.warn("corrupt_request", connection=request.connection.id, error=error)
            request.close()
            return
        release = self._release
        if release is not None and not release.has(decoded.api, decoded.version):
            self._unsupported(
                request,
                UnsupportedVersion(
                    f"{decoded.api.message} {decoded.version} is newer than the release that this broker passes for",
                    api_key=decoded.api,
                    api_version=decoded.version,
                    correlation_id=decoded.correlation_id,
                ),
            )
            return
        context = RequestContext(request, decoded, self.metrics.of(decoded.api), self._authorize, self._completed)
        if decoded.api not in self._handlers:
            self._notices.warn("unknown_request", connection=request.connection.id, api=decoded.api.message)
            context.close()
            return
        if not self._gates or self._admitted(context, 0):
            self._handle(context)

    def _admitted(self, context: RequestContext, first: int) -> bool:
        """Do all gates from this one on admit the request now?"""
        for number in range(first, len(self._gates)):

            def go_on(following: int = number + 1) -> None:
                if self._admitted(context, following):
                    self._handle(context)

            if not self._gates[number].admit(context, go_on):
                return False
        return True

    def _handle(self, context: RequestContext) -> None:
        handle = self._handlers[context.api]
        began = context.began = self._clock.monotonic()
        try:
            response = handle(context, context.message)
        except Exception as error:
            self._failed(context, error)
            return
        metrics = context.metrics
        metrics.queue.note(began - context.received)
        context.handled = self._clock.monotonic()
        metrics.local.note(context.handled - began)
        if response is not None:
            context.respond(response)
        elif not context.network.completed:  # as in Kafka: what waits for others must not keep them from being read
            context.network.release()

    def _completed(self, context: RequestContext, response: Message | None, throttle_ms: int) -> int:
        """A request is about to be completed. Returns how long its connection is not read afterwards, in ms."""
        metrics, now = context.metrics, self._clock.monotonic()
        context.network.measure(now, metrics.response_queue, metrics.response_send, metrics.total)
        if context.handled:  # it has waited since
            metrics.remote.note(now - context.handled)
        if self._throttle is not None and context.began and response is not None:  # as in Kafka not with acks=0
            throttle_ms = max(throttle_ms, self._throttle(context, (context.handled or now) - context.began))
            if throttle_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        metrics.requests[context.version] = metrics.requests.get(context.version, 0) + 1
        metrics.bytes_in += context.request_bytes
        if throttle_ms:
            metrics.throttle.note(throttle_ms / 1000)
        return throttle_ms

    def _unsupported(self, request: NetworkRequest, error: UnsupportedVersion) -> None:
        if error.api_key == ApiKey.API_VERSIONS and error.correlation_id is not None:
            request.respond(
                encode_response(ApiKey.API_VERSIONS, 0, error.correlation_id, unknown_version(self._release))
            )
        else:
            self._notices.warn("unsupported_request", connection=request.connection.id, error=error)
            request.close()

    def _failed(self, context: RequestContext, error: Exception) -> None:
        context.log_failure(error)
        if context.completed:
            return
        if context.api is ApiKey.PRODUCE and context.message.acks == 0:  # it expects no response
            context.close()
            return
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        context.respond(error_response(context.api, context.version, context.message, code))
