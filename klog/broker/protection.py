"""Authentication, access rules and quotas of clients, for one start of a broker.

Each is loaded at start if its file is there or the configuration needs it, so that an invalid file is reported then. A
broker without SASL listeners, authorizer and quotas loads nothing of klog.security but its configuration.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from klog.broker.error_responses import error_response
from klog.broker.late import Late
from klog.disk import exists
from klog.protocol import ApiKey, ErrorCode
from klog.security import SecurityConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.authentication import Authentication
    from klog.broker.context import RequestContext
    from klog.broker.late import Handler
    from klog.clock import Clock
    from klog.protocol import Message
    from klog.security import Authorizer, ClientQuotas, Users
    from klog.security.quota_entities import Kind

_EXCHANGE = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_ACLS = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
_QUOTAS = (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS)
_USERS = (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
_QUOTAS_FILE, _USERS_FILE = "klog-quotas.json", "klog-users.json"
# These change a file, so they may wait for the disk.
SLOW = frozenset(
    (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
)


class Protection:
    """Any thread. directory: the first log.dir, which has the files. Raises CorruptCheckpoint, NewerFormat,
    OSError for one of them."""

    def __init__(self, config: SecurityConfig, directory: str, clock: Clock, *, authenticates: bool) -> None:
        self._config = config
        self._directory = directory
        self._clock = clock
        self._authenticates = authenticates
        self._users: Late[Users] = Late(_USERS, self._make_users)
        self._authorizer: Late[Authorizer] = Late(_ACLS, self._make_authorizer)
        self._quotas: Late[ClientQuotas] = Late(_QUOTAS, self._make_quotas)
        if authenticates or exists(os.path.join(directory, _USERS_FILE)):
            self._users.get()
        if config.authorizes:
            self._authorizer.get()
        if exists(os.path.join(directory, _QUOTAS_FILE)):
            self._quotas.get()

    def _make_users(self) -> Users:
        from klog.security import Users

        return Users(self._directory)

    def _make_authorizer(self) -> Authorizer:
        from klog.security import Authorizer

        return Authorizer(self._directory, self._config)

    def _make_quotas(self) -> ClientQuotas:
        from klog.security import ClientQuotas

        return ClientQuotas(self._directory, self._config, self._clock)

    def authentication(self) -> Authentication | None:
        """The gate of SASL listeners; None if there are none."""
        if not self._authenticates:
            return None
        from klog.broker.authentication import Authentication
        from klog.security import Sasl

        return Authentication(Sasl(self._config, self._users.get(), self._clock))

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs that read and change users, access rules and quotas. Without SASL also those of the exchange: Kafka
        advertises them nevertheless, and refuses them."""
        exchange = {} if self._authenticates else dict.fromkeys(_EXCHANGE, _without_sasl)
        return exchange | self._users.handlers() | self._authorizer.handlers() | self._quotas.handlers()

    def authorize(self) -> Callable[[RequestContext, str, str, str], bool] | None:
        """The function that RequestContext.authorized asks; None if everybody may do everything."""
        if not self._config.authorizes:
            return None
        authorizer = self._authorizer.get()

        def authorized(context: RequestContext, operation: str, resource_type: str, name: str) -> bool:
            host = context.client_host[1:]
            if operation == "IDEMPOTENT_WRITE":
                return authorizer.may_write_idempotently(context.principal, host)
            return authorizer.authorized(context.principal, host, operation, resource_type, name)

        return authorized

    # ---- quotas ------------------------------------------------------------------------------------------------------

    def throttle_produced(self, context: RequestContext, size: int) -> int:
        """How long a client waits after producing this many bytes, in ms."""
        return 0 if self._quotas.made is None else self._throttle(context, "producer_byte_rate", size)

    def throttle_fetched(self, context: RequestContext, size: int) -> int:
        """How long a client waits before it may fetch this many bytes, in ms. If it waits, the bytes do not count,
        because it does not get them."""
        if self._quotas.made is None:
            return 0
        waits_ms = self._throttle(context, "consumer_byte_rate", size)
        if waits_ms:
            self._quotas.made.unrecord(_user(context), context.client_id, "consumer_byte_rate", size)
        return waits_ms

    def throttle_acquired(self, context: RequestContext, size: int) -> int:
        """How long a client waits after a ShareFetch of this many bytes, in ms. It gets them also if it waits, as it
        has acquired the records: they count."""
        return self._throttle(context, "consumer_byte_rate", size)

    def fetch_bytes_max(self, context: RequestContext) -> int | None:
        """The maximum number of bytes of a Fetch or ShareFetch response: more would always be throttled. None without a
        quota."""
        return (
            None if self._quotas.made is None else self._quotas.made.fetch_bytes_max(_user(context), context.client_id)
        )

    def throttle_handled(self, context: RequestContext, seconds: float) -> int:
        """How long a client waits after a request that took so much of a thread's time, in ms."""
        return 0 if self._quotas.made is None else self._throttle(context, "request_percentage", seconds)

    def throttle_changed(self, context: RequestContext, mutations: int, *, strict: bool) -> int:
        """How long a client waits after creating or deleting this many partitions, in ms. strict: it waits before."""
        if self._quotas.made is None:
            return 0
        return self._quotas.made.mutation_throttle_ms(_user(context), context.client_id, mutations, strict=strict)

    def throttle_connection(self, address: str) -> int:
        """After how many ms a new connection of an address is closed, 0 if it is accepted."""
        return 0 if self._quotas.made is None else self._quotas.made.connection_throttle_ms(address)

    def _throttle(self, context: RequestContext, kind: Kind, amount: float) -> int:
        if self._quotas.made is None:
            return 0
        return self._quotas.made.throttle_ms(_user(context), context.client_id, kind, amount)


def _without_sasl(context: RequestContext, request: Any) -> Message:
    return error_response(context.api, context.version, request, ErrorCode.ILLEGAL_SASL_STATE)


def _user(context: RequestContext) -> str:
    return context.principal.removeprefix("User:")
