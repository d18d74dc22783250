"""Authentication of connections, before their requests are handled. Kafka: SaslServerAuthenticator, KafkaApis.

A connection of a SASL listener may make only the requests of the exchange until it is authenticated, and again when its
session has ended. Another one closes it: before the authentication with ILLEGAL_SASL_STATE, if the response has a place
for it. Later without a response, so that the client sends the request again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.error_responses import error_response
from klog.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.context import RequestContext
    from klog.network import Connection
    from klog.protocol import Message
    from klog.security import Outcome, Sasl, SaslSession


class Authentication:
    """A gate, and the handlers of SaslHandshake and SaslAuthenticate. Any thread; the session of a connection is its
    `state`, used by one request at a time."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.SASL_HANDSHAKE: self.handshake, ApiKey.SASL_AUTHENTICATE: self.authenticate}

    def admits(self, connection: Connection, api: ApiKey) -> bool:
        """Does the state of the connection allow requests of this API? It can change by a request of its own, or to a
        session that has ended."""
        return not connection.listener.authenticates or self._session(connection).allows(api)

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        """Does the state of its connection allow the request? One that admits() did not allow has an empty message."""
        if self.admits(context.connection, context.api):
            return True
        session = self._session(context.connection)
        response: Any = error_response(context.api, context.version, context.message, ErrorCode.ILLEGAL_SASL_STATE)
        if session.expired or not getattr(response, "error_code", 0):
            context.close()
        else:
            context.refuse_authentication(response)
        return False

    def _session(self, connection: Connection) -> SaslSession:
        if connection.state is None:
            connection.state = self._sasl.session(connection.listener.name, str(connection.peer[0]))
        session: SaslSession = connection.state
        return session

    def handshake(self, context: RequestContext, request: Any) -> Message | None:
        """Choose a mechanism."""
        if not context.connection.listener.authenticates:
            return error_response(context.api, context.version, request, ErrorCode.ILLEGAL_SASL_STATE)
        return self._apply(context, self._session(context.connection).handshake(context.version, request))

    def authenticate(self, context: RequestContext, request: Any) -> Message | None:
        """A step of the exchange."""
        if not context.connection.listener.authenticates:
            return error_response(context.api, context.version, request, ErrorCode.ILLEGAL_SASL_STATE)
        return self._apply(context, self._session(context.connection).authenticate(request))

    def _apply(self, context: RequestContext, outcome: Outcome) -> Message | None:
        if outcome.refuse:
            context.refuse_authentication(outcome.response)
            return None
        if outcome.principal is not None:
            context.connection.authenticate(outcome.principal)
        return outcome.response
