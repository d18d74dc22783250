"""Who may do what, and how fast, for one start of a broker: users, access rules and quotas.

Each is loaded at start if its file is there or the configuration needs it, so that an invalid file is reported then. A
broker without SASL listeners, authorizer and quotas loads nothing of klog.security but its configuration.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from klog.protocol import ApiKey
from klog.security import SecurityConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.authentication import Authentication
    from klog.broker.context import RequestContext
    from klog.clock import Clock
    from klog.protocol import Message
    from klog.security import Authorizer, ClientQuotas, Users
    from klog.security.quota_entities import Kind

    Handler = Callable[[Any, Any], Message | None]

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
    PermissionError for one of them."""

    def __init__(self, config: SecurityConfig, directory: str, clock: Clock, *, authenticates: bool) -> None:
        self._config = config
        self._directory = directory
        self._clock = clock
        self._authenticates = authenticates
        self._lock = threading.Lock()  # guards the making of the three
        self._users: Users | None = None
        self._authorizer: Authorizer | None = None
        self._quotas: ClientQuotas | None = None
        if authenticates or os.path.exists(os.path.join(directory, _USERS_FILE)):
            self.users()
        if config.authorizes:
            self.authorizer()
        if os.path.exists(os.path.join(directory, _QUOTAS_FILE)):
            self.quotas()

    def users(self) -> Users:
        """The keys of users."""
        from klog.security import Users

        with self._lock:
            if self._users is None:
                self._users = Users(self._directory)
            return self._users

    def authorizer(self) -> Authorizer:
        """The access rules."""
        from klog.security import Authorizer

        with self._lock:
            if self._authorizer is None:
                self._authorizer = Authorizer(self._directory, self._config)
            return self._authorizer

    def quotas(self) -> ClientQuotas:
        """The quotas of clients."""
        from klog.security import ClientQuotas

        with self._lock:
            if self._quotas is None:
                self._quotas = ClientQuotas(self._directory, self._config, self._clock)
            return self._quotas

    def authentication(self) -> Authentication | None:
        """The gate of SASL listeners; None if there are none."""
        if not self._authenticates:
            return None
        from klog.broker.authentication import Authentication
        from klog.security import Sasl

        return Authentication(Sasl(self._config, self.users(), self._clock))

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs that read and change the three."""
        found: dict[ApiKey, Handler] = {}
        for apis, make in ((_ACLS, self.authorizer), (_QUOTAS, self.quotas), (_USERS, self.users)):
            for api in apis:
                found[api] = _late(api, make)
        return found

    def authorize(self) -> Callable[[RequestContext, str, str, str], bool] | None:
        """The function that RequestContext.authorized asks; None if everybody may do everything."""
        if not self._config.authorizes:
            return None
        authorizer = self.authorizer()

        def authorized(context: RequestContext, operation: str, resource_type: str, name: str) -> bool:
            host = context.client_host[1:]
            if operation == "IDEMPOTENT_WRITE":
                return authorizer.may_write_idempotently(context.principal, host)
            return authorizer.authorized(context.principal, host, operation, resource_type, name)

        return authorized

    # ---- quotas ------------------------------------------------------------------------------------------------------

    def throttle_produced(self, context: RequestContext, size: int) -> int:
        """How long a client waits after producing so many bytes, in ms."""
        return 0 if self._quotas is None else self._throttle(context, "producer_byte_rate", size)

    def throttle_fetched(self, context: RequestContext, size: int) -> int:
        """How long a client waits before it may fetch so many bytes, in ms. If it has to wait, the bytes do not count,
        because it does not get them."""
        if self._quotas is None:
            return 0
        waits_ms = self._throttle(context, "consumer_byte_rate", size)
        if waits_ms:
            self._quotas.unrecord(_user(context), context.client_id, "consumer_byte_rate", size)
        return waits_ms

    def fetch_bytes_max(self, context: RequestContext) -> int | None:
        """The most that one response of Fetch may have: more would always be throttled. None without a quota."""
        return None if self._quotas is None else self._quotas.fetch_bytes_max(_user(context), context.client_id)

    def throttle_handled(self, context: RequestContext, seconds: float) -> int:
        """How long a client waits after a request that took so much of a thread's time, in ms."""
        return 0 if self._quotas is None else self._throttle(context, "request_percentage", seconds)

    def throttle_changed(self, context: RequestContext, mutations: int, *, strict: bool) -> int:
        """How long a client waits after creating or deleting so many partitions, in ms. strict: it waits before."""
        if self._quotas is None:
            return 0
        return self._quotas.mutation_throttle_ms(_user(context), context.client_id, mutations, strict=strict)

    def _throttle(self, context: RequestContext, kind: Kind, amount: float) -> int:
        if self._quotas is None:
            return 0
        return self._quotas.throttle_ms(_user(context), context.client_id, kind, amount)


def _user(context: RequestContext) -> str:
    return context.principal.removeprefix("User:")


def _late(api: ApiKey, make: Callable[[], Any]) -> Handler:
    """A handler of a component that is made when it is first called."""

    def handle(context: Any, request: Any) -> Message | None:
        handler: Handler = make().handlers()[api]
        return handler(context, request)

    return handle
