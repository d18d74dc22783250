"""The access rules of a broker: `klog-acls.json` in the first log.dir. Kafka: StandardAuthorizer, AclControlManager.

{"version": 1, "acls": [{"resource_type": "TOPIC", "pattern_type": "LITERAL", "name": "flights",
 "principal": "User:alice", "host": "*", "operation": "READ", "permission": "ALLOW"}, ...], "crc32c": N}
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from klog.disk import Files, RealFiles
from klog.protocol import ApiKey
from klog.security.refusals import CLUSTER_NAME
from klog.security.state_file import StateFile

if TYPE_CHECKING:
    from klog.security.acl_index import AclIndex
    from klog.security.acl_types import Acl, AclFilter
    from klog.security.config import SecurityConfig
    from klog.security.context import Context

FILE = "klog-acls.json"


class Authorizer:
    """The rules, their decisions, and the requests that read and change them. Any thread; `_lock` guards changes, and
    decisions are made by the rules that were there last.

    enabled: does authorizer.class.name name one? Without it everything is allowed, and the file is neither read nor
    written. directory: the first log.dir. Raises CorruptCheckpoint, NewerFormat, PermissionError for its file.
    """

    def __init__(self, directory: str, config: SecurityConfig, files: Files | None = None) -> None:
        self._lock = threading.Lock()
        self._file = StateFile(directory, FILE, files or RealFiles())
        self._super_users = config.super_users
        self._default = config.allow_everyone_if_no_acl_found
        self._index: AclIndex | None = None  # without an authorizer
        if config.authorizes:
            from klog.security.acl_codec import decoded

            self._index = self._index_of(self._file.load(decoded, []))

    def _index_of(self, acls: Iterable[Acl]) -> AclIndex:
        from klog.security.acl_index import AclIndex

        return AclIndex(acls, self._super_users, self._default)

    @property
    def enabled(self) -> bool:
        """Does authorizer.class.name name an authorizer?"""
        return self._index is not None

    def authorized(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """May the principal do this? principal: "User:alice". host: an address, also with Java's slash in front.
        operation: "READ". resource_type: "TOPIC". Raises KeyError for an unknown operation or resource type."""
        index = self._index
        return index is None or index.allows(principal, host, operation, resource_type, name)

    def authorized_by_type(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """May the principal do this to at least one resource of the type?"""
        index = self._index
        return index is None or index.allows_some(principal, host, operation, resource_type)

    def may_write_idempotently(self, principal: str, host: str) -> bool:
        """InitProducerId without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
        return self.authorized(principal, host, "IDEMPOTENT_WRITE", "CLUSTER", CLUSTER_NAME) or self.authorized_by_type(
            principal, host, "WRITE", "TOPIC"
        )

    def find(self, wanted: AclFilter) -> list[Acl]:
        """The rules that match, sorted."""
        return [] if self._index is None else sorted(filter(wanted.matches, self._index.acls))

    def change(self, *, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        """Remove rules and add others, durably; all or none. Raises OSError; RuntimeError without an authorizer."""
        from klog.security.acl_codec import encoded

        with self._lock:
            index = self._index
            if index is None:
                raise RuntimeError("no authorizer: set authorizer.class.name to have access rules")
            acls = (index.acls - frozenset(remove)) | frozenset(add)
            if acls != index.acls:
                self._file.save({"acls": [encoded(acl) for acl in sorted(acls)]})
                self._index = self._index_of(acls)

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """DescribeAcls, CreateAcls and DeleteAcls. The last two wait for the disk."""
        return {
            ApiKey.DESCRIBE_ACLS: self._describe,
            ApiKey.CREATE_ACLS: self._create,
            ApiKey.DELETE_ACLS: self._delete,
        }

    # Their module is loaded by the first request: few brokers get one.

    def _describe(self, context: Context, request: Any) -> Any:
        from klog.security import acl_requests

        return acl_requests.describe(self, context, request)

    def _create(self, context: Context, request: Any) -> Any:
        from klog.security import acl_requests

        return acl_requests.create(self, context, request)

    def _delete(self, context: Context, request: Any) -> Any:
        from klog.security import acl_requests

        return acl_requests.delete(self, context, request)

    def __repr__(self) -> str:
        return f"Authorizer({self._file.path!r}, {'off' if self._index is None else f'{len(self._index.acls)} rules'})"


def authorized_operations(authorized: Callable[[str, str, str], bool], resource_type: str, name: str) -> int:
    """The operations that a client may do to a resource, as the bit set of `include_..._authorized_operations`.
    authorized: of the request's context."""
    from klog.security.acl_types import OPERATIONS, ResourceType

    return sum(
        1 << operation
        for operation in OPERATIONS[ResourceType[resource_type]]
        if authorized(operation.name, resource_type, name)
    )
