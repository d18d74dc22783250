"""The access rules of a broker: `klog-acls.json` in the first log.dir. Kafka: StandardAuthorizer, AclControlManager.

{"version": 1, "acls": [{"resource_type": "TOPIC", "pattern_type": "LITERAL", "name": "flights",
 "principal": "User:alice", "host": "*", "operation": "READ", "permission": "ALLOW"}, ...], "crc32c": N}
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog.disk import Files, RealFiles
from klog.security import acl_requests
from klog.security.acl_index import AclIndex
from klog.security.acl_types import OPERATIONS, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from klog.security.refusals import CLUSTER_NAME, Wrong
from klog.security.state_file import Malformed, StateFile

if TYPE_CHECKING:
    from klog.protocol import ApiKey
    from klog.security.config import SecurityConfig

FILE = "klog-acls.json"
_FIELDS = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": Operation,
    "permission": Permission,
}


class Authorizer:
    """The rules, their decisions, and the requests that read and change them. Any thread; `_lock` guards changes, and
    decisions are made by the rules that were there last.

    enabled: does authorizer.class.name name one? Without it everything is allowed, and the file is neither read nor
    written. directory: the first log.dir. Raises CorruptCheckpoint, NewerFormat, PermissionError for its file.
    """

    def __init__(self, directory: str, config: SecurityConfig, files: Files | None = None) -> None:
        self.enabled = config.authorizes
        self._lock = threading.Lock()
        self._file = StateFile(directory, FILE, files or RealFiles())
        self._super_users = config.super_users
        self._default = config.allow_everyone_if_no_acl_found
        self._index = self._index_of(self._file.load(_decoded, []) if self.enabled else [])

    def _index_of(self, acls: Iterable[Acl]) -> AclIndex:
        return AclIndex(acls, self._super_users, self._default)

    def authorized(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """May the principal do this? principal: "User:alice". host: an address, also with Java's slash in front.
        operation: "READ". resource_type: "TOPIC". Raises KeyError for an unknown operation or resource type."""
        return not self.enabled or self._index.allows(principal, host, operation, resource_type, name)

    def authorized_by_type(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """May the principal do this to at least one resource of the type?"""
        return not self.enabled or self._index.allows_some(principal, host, operation, resource_type)

    def may_write_idempotently(self, principal: str, host: str) -> bool:
        """InitProducerId without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
        return self.authorized(principal, host, "IDEMPOTENT_WRITE", "CLUSTER", CLUSTER_NAME) or self.authorized_by_type(
            principal, host, "WRITE", "TOPIC"
        )

    def find(self, wanted: AclFilter) -> list[Acl]:
        """The rules that match, sorted."""
        return sorted(filter(wanted.matches, self._index.acls))

    def change(self, *, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        """Remove rules and add others, durably; all or none. Raises OSError."""
        with self._lock:
            acls = (self._index.acls - frozenset(remove)) | frozenset(add)
            if acls != self._index.acls:
                self._file.save({"acls": [_encoded(acl) for acl in sorted(acls)]})
                self._index = self._index_of(acls)

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """DescribeAcls, CreateAcls and DeleteAcls."""
        return acl_requests.handlers(self)

    def __repr__(self) -> str:
        return f"Authorizer({self._file.path!r}, {len(self._index.acls)} rules)"


def authorized_operations(authorized: Callable[[str, str, str], bool], resource_type: str, name: str) -> int:
    """The operations that a client may do to a resource, as the bit set of `include_..._authorized_operations`.
    authorized: of the request's context."""
    return sum(
        1 << operation
        for operation in OPERATIONS[ResourceType[resource_type]]
        if authorized(operation.name, resource_type, name)
    )


def _encoded(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "pattern_type": acl.pattern_type.name,
        "name": acl.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _decoded(document: Mapping[str, Any]) -> list[Acl]:
    return [_rule(number, each) for number, each in enumerate(document["acls"])]


def _rule(number: int, each: Mapping[str, Any]) -> Acl:
    where = f"acls[{number}]"
    values: dict[str, Any] = {}
    for key, kind in _FIELDS.items():
        if each[key] not in kind.__members__:
            raise Malformed(f"{where}: {key}={each[key]!r}"[:200])
        values[key] = kind[each[key]]
    for key in ("name", "principal", "host"):
        if not isinstance(each[key], str) or not each[key]:
            raise Malformed(f"{where}: {key}")
        values[key] = each[key]
    acl = Acl(**values)
    try:
        acl_requests.check(acl)
    except Wrong as error:
        raise Malformed(f"{where}: {error.reason}") from None
    return acl
