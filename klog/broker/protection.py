"""Who may do what, and how fast, for one start of a broker: users, access rules and quotas, each loaded when needed.

A broker without SASL listeners, authorizer and quotas loads nothing of klog.security but its configuration.
"""

from __future__ import annotations

import os
from functools import cached_property
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

    Handler = Callable[[Any, Any], Message | None]

_ACLS = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
_QUOTAS = (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS)
_USERS = (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
_QUOTAS_FILE = "klog-quotas.json"
# These change a file, so they may wait for the disk.
SLOW = frozenset(
    (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
)


class Protection:
    """Any thread. directory: the first log.dir, which has the files."""

    def __init__(self, config: SecurityConfig, directory: str, clock: Clock, *, authenticates: bool) -> None:
        self._config = config
        self._directory = directory
        self._clock = clock
        self._authenticates = authenticates
        self._has_quotas = os.path.exists(os.path.join(directory, _QUOTAS_FILE))

    @cached_property
    def users(self) -> Users:
        """The keys of users."""
        from klog.security import Users

        return Users(self._directory)

    @cached_property
    def authorizer(self) -> Authorizer:
        """The access rules."""
        from klog.security import Authorizer

        return Authorizer(self._directory, self._config)

    @cached_property
    def quotas(self) -> ClientQuotas:
        """The quotas of clients."""
        from klog.security import ClientQuotas

        return ClientQuotas(self._directory, self._config, self._clock)

    def authentication(self) -> Authentication | None:
        """The gate of SASL listeners; None if there are none."""
        if not self._authenticates:
            return None
        from klog.broker.authentication import Authentication
        from klog.security import Sasl

        return Authentication(Sasl(self._config, self.users, self._clock))

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs that read and change the three."""
        found = {}
        for apis, component in ((_ACLS, "authorizer"), (_QUOTAS, "quotas"), (_USERS, "users")):
            for api in apis:
                found[api] = self._late(api, component)
        return found

    def _late(self, api: ApiKey, component: str) -> Handler:
        def handle(context: Any, request: Any) -> Message | None:
            if component == "quotas":
                self._has_quotas = True
            handler: Handler = getattr(self, component).handlers()[api]
            return handler(context, request)

        return handle

    def authorize(self) -> Callable[[RequestContext, str, str, str], bool] | None:
        """The function that RequestContext.authorized asks; None if everybody may do everything."""
        if not self._config.authorizes:
            return None
        authorizer = self.authorizer

        def authorized(context: RequestContext, operation: str, resource_type: str, name: str) -> bool:
            host = context.client_host[1:]
            return authorizer.authorized(context.principal, host, operation, resource_type, name)

        return authorized

    def throttle_produced(self, context: RequestContext, size: int) -> int:
        """How long a client waits after producing so many bytes, in ms."""
        return self._throttle(context, "producer_byte_rate", size)

    def throttle_fetched(self, context: RequestContext, size: int) -> int:
        """How long a client waits after fetching so many bytes, in ms."""
        return self._throttle(context, "consumer_byte_rate", size)

    def _throttle(self, context: RequestContext, kind: Any, size: int) -> int:
        if not self._has_quotas:
            return 0
        user = context.principal.removeprefix("User:")
        return self.quotas.throttle_ms(user, context.client_id, kind, size)
