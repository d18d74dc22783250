"""SASL of a connection, server side: SaslHandshake and SaslAuthenticate. Kafka: SaslServerAuthenticator, KIP-152, 368.

  handshake ──SaslHandshake──► exchange ──SaslAuthenticate, until done──► authenticated
                                  ▲                                            │
                                  └──────── SaslHandshake again (KIP-368) ─────┘
  any failure ──► refused: the response leaves after a delay, then the connection closes

A1  in `handshake` and `exchange` no request is served but those of this module and ApiVersions (before a handshake).
A2  a client re-authenticates with the mechanism and the principal that it has, or is refused.
A3  a session that has ended serves nothing but a handshake.
A4  the text of a failure does not depend on whether the user exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from klog.clock import Clock
from klog.logger import logger_of
from klog.network.notices import Notices
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security import plain, scram
from klog.security.exchange import PLAIN, Exchange, Refused
from klog.security.failures import FailureLimits
from klog.security.plain import PlainExchange
from klog.security.scram import ScramExchange
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.protocol import Message
    from klog.security.config import ListenerConfig, SecurityConfig
    from klog.security.users import Users

_log = logger_of("security")
Phase = Literal["handshake", "exchange", "authenticated", "refused"]
_REAUTHENTICATION_SECONDS_MIN = 1.0  # Kafka: KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the broker does with a request of this module.

    response: to be sent. principal: the client is authenticated as this one now, before the response leaves;
    session_lifetime_ms is 0 if it need not re-authenticate. refuse: send the response after
    connection.failed.authentication.delay.ms, then close (`Request.refuse_authentication`).
    """

    response: Message
    principal: str | None = None
    session_lifetime_ms: int = 0
    refuse: bool = False


def allowed_before_authentication(api: ApiKey, phase: Phase) -> bool:
    """May a connection in this phase make this request? All are allowed once it is authenticated. A broker answers
    others with ILLEGAL_SASL_STATE and closes the connection."""
    if phase == "authenticated":
        return True
    if phase == "handshake":
        return api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
    return phase == "exchange" and api is ApiKey.SASL_AUTHENTICATE


class Sasl:
    """SASL of a broker: makes the state of each connection. Any thread."""

    def __init__(self, config: SecurityConfig, users: Users, clock: Clock) -> None:
        self._config = config
        self._users = users
        self._clock = clock
        self._failures = FailureLimits(config.sasl_failures_max, config.sasl_failures_window_ms, clock)
        self._notices = Notices(clock, _log)

    def session(self, listener: str, address: str) -> SaslSession:
        """The state of a new connection to a listener whose protocol is SASL_PLAINTEXT or SASL_SSL. address: the
        client's, without its port. Raises ValueError for another listener."""
        config = self._config.listener(listener)
        if not config.authenticates:
            raise ValueError(f"listener={listener!r}: its protocol is {config.protocol}, which does not use SASL")
        return SaslSession(config, self._users, self._failures, self._notices, self._clock, address)


class SaslSession:
    """One connection's SASL. One thread at a time, as its requests are."""

    __slots__ = (
        "_address",
        "_began",
        "_clock",
        "_config",
        "_exchange",
        "_expires",
        "_failures",
        "_mechanism",
        "_notices",
        "_users",
        "_wrong_mechanism",
        "phase",
        "principal",
    )

    def __init__(
        self,
        config: ListenerConfig,
        users: Users,
        failures: FailureLimits,
        notices: Notices,
        clock: Clock,
        address: str,
    ) -> None:
        self._config = config
        self._users = users
        self._failures = failures
        self._notices = notices
        self._clock = clock
        self._address = address
        self._exchange: Exchange | None = None
        self._mechanism: str | None = None
        self._wrong_mechanism: str | None = None  # that a re-authentication asked for
        self._began: float | None = None  # the last re-authentication
        self._expires: float | None = None
        self.phase: Phase = "handshake"
        self.principal: str | None = None

    def allows(self, api: ApiKey) -> bool:
        """May the connection make this request now? False also when its session has ended; the connection closes then
        (A1, A3)."""
        if self.phase == "authenticated" and self.expired:
            return api is ApiKey.SASL_HANDSHAKE
        return allowed_before_authentication(api, self.phase)

    @property
    def expired(self) -> bool:
        """Has the session's lifetime ended without a re-authentication?"""
        return self._expires is not None and self._clock.monotonic() > self._expires

    def handshake(self, version: int, request: messages.SaslHandshake.Request) -> Outcome:
        """SaslHandshake: choose the mechanism."""
        response, offered = messages.SaslHandshake.Response, list(self._config.mechanisms)
        if self.phase not in ("handshake", "authenticated") or not self._may_begin_again():
            answer = response(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            if self.phase == "authenticated" and not self.expired:
                return Outcome(answer)
            return self._refused(answer, "handshake_out_of_order")
        if version < 1:  # raw tokens without Kafka's headers would follow
            answer = response(error_code=ErrorCode.UNSUPPORTED_VERSION, mechanisms=offered)
            return self._refused(answer, "handshake_version_0")
        if request.mechanism not in offered:
            answer = response(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
            return self._refused(answer, "mechanism")
        self._wrong_mechanism = None
        if self._mechanism not in (None, request.mechanism):
            self._wrong_mechanism = request.mechanism
        else:
            self._mechanism = request.mechanism
        self._exchange = self._new_exchange(request.mechanism)
        self.phase = "exchange"
        return Outcome(response(mechanisms=offered))

    def _may_begin_again(self) -> bool:
        """At most one re-authentication a second."""
        if self.phase != "authenticated":
            return True
        now = self._clock.monotonic()
        if self._began is not None and now - self._began < _REAUTHENTICATION_SECONDS_MIN:
            return False
        self._began = now
        return True

    def _new_exchange(self, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange(self._config.plain_users)
        found = scram.MECHANISMS[mechanism]
        return ScramExchange(found, lambda user: self._users.credential(found, user))

    def authenticate(self, request: messages.SaslAuthenticate.Request) -> Outcome:
        """SaslAuthenticate: one step of the exchange."""
        response = messages.SaslAuthenticate.Response
        exchange = self._exchange
        if self.phase != "exchange" or exchange is None:
            answer = response(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received without a SaslHandshake before it",
            )
            return Outcome(answer) if self.phase == "authenticated" else self._refused(answer, "no_handshake")
        try:
            data = self._step(exchange, request)
        except Refused as error:
            self._failures.failed(exchange.user, self._address)
            answer = response(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error))
            return self._refused(answer, "credentials", "authentication_failed", exchange.user)
        if not exchange.complete:
            return Outcome(response(auth_bytes=data))
        return self._completed(exchange, data)

    def _step(self, exchange: Exchange, request: messages.SaslAuthenticate.Request) -> bytes:
        if self._wrong_mechanism is not None:
            raise Refused(
                f"SASL mechanism '{self._wrong_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._mechanism}'"
            )
        if len(request.auth_bytes) > self._config.receive_bytes_max:
            raise Refused("Failing SASL authentication due to invalid receive size")
        data = exchange.respond(bytes(request.auth_bytes))
        if exchange.complete:
            if self._failures.exceeded(exchange.user, self._address):  # also with the right password
                raise Refused(_invalid_credentials(self._mechanism))
            principal = f"User:{exchange.user}"
            if self.principal not in (None, principal):
                raise Refused(f"Cannot change principals during re-authentication from {_dotted(self.principal)}")
        return data

    def _completed(self, exchange: Exchange, data: bytes) -> Outcome:
        assert self._mechanism is not None
        lifetime_ms = self._config.max_reauth_ms(self._mechanism)
        self._expires = self._clock.monotonic() + lifetime_ms / 1000 if lifetime_ms else None
        self._exchange = None
        self.phase, self.principal = "authenticated", f"User:{exchange.user}"
        answer = messages.SaslAuthenticate.Response(auth_bytes=data, session_lifetime_ms=lifetime_ms)
        return Outcome(answer, self.principal, lifetime_ms)

    def _refused(self, response: Message, why: str, event: str = "sasl_refused", user: str = "") -> Outcome:
        self.phase, self._exchange = "refused", None
        self._notices.warn(event, address=self._address, mechanism=self._mechanism, user=repr(user[:64]), why=why)
        return Outcome(response, refuse=True)


def _invalid_credentials(mechanism: str | None) -> str:
    if mechanism == PLAIN:
        return plain.INVALID
    return scram.invalid_credentials(str(mechanism))


def _dotted(principal: str | None) -> str:
    return str(principal).replace(":", ".", 1)
