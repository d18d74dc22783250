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

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        """Does the state of its connection allow the request?"""
        connection = context.connection
        if not connection.listener.authenticates:
            return True
        session = self._session(context)
        if session.allows(context.api):
            return True
        response: Any = error_response(context.api, context.version, context.message, ErrorCode.ILLEGAL_SASL_STATE)
        if session.expired or not getattr(response, "error_code", 0):
            context.close()
        else:
            context.refuse_authentication(response)
        return False

    def _session(self, context: RequestContext) -> SaslSession:
        connection = context.connection
        if connection.state is None:
            connection.state = self._sasl.session(context.listener, str(connection.peer[0]))
        session: SaslSession = connection.state
        return session

    def handshake(self, context: RequestContext, request: Any) -> Message | None:
        """Choose a mechanism."""
        if not context.connection.listener.authenticates:
            return error_response(context.api, context.version, request, ErrorCode.ILLEGAL_SASL_STATE)
        return self._apply(context, self._session(context).handshake(context.version, request))

    def authenticate(self, context: RequestContext, request: Any) -> Message | None:
        """A step of the exchange."""
        if not context.connection.listener.authenticates:
            return error_response(context.api, context.version, request, ErrorCode.ILLEGAL_SASL_STATE)
        return self._apply(context, self._session(context).authenticate(request))

    def _apply(self, context: RequestContext, outcome: Outcome) -> Message | None:
        if outcome.refuse:
            context.refuse_authentication(outcome.response)
            return None
        if outcome.principal is not None:
            context.connection.authenticate(outcome.principal)
        return outcome.response
