"""Decides by a set of rules. Kafka: StandardAuthorizerData, Authorizer.authorizeByResourceType.

D1  a rule that denies wins over every rule that allows.
D2  without a matching rule the operation is denied; if no rule is about the resource at all,
    allow.everyone.if.no.acl.found decides.
D3  super users may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.security.acl_types import (
    ANYBODY,
    IMPLIED_BY,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from klog.security.addresses import comparable_host

_DECISIONS_MAX = 10_000  # that are kept


class AclIndex:
    """A set of rules, immutable, with the decisions that were made by it. Any thread."""

    def __init__(self, acls: Iterable[Acl], super_users: frozenset[str], default: bool) -> None:
        self.acls = frozenset(acls)
        self._super_users = super_users
        self._default = default
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        sizes: dict[ResourceType, set[int]] = {}
        for acl in self.acls:
            prefixed = acl.pattern_type is PatternType.PREFIXED
            table = self._prefixed if prefixed else self._literal
            table.setdefault((acl.resource_type, acl.name), []).append(acl)
            if prefixed:
                sizes.setdefault(acl.resource_type, set()).add(len(acl.name))
        self._sizes = {kind: sorted(found) for kind, found in sizes.items()}  # of prefixes
        self._decisions: dict[tuple[str, str, str, str, str], bool] = {}
        self._some: dict[tuple[str, str, str, str], bool] = {}

    def allows(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """May the principal do this? A repeated question is one dict lookup. Raises KeyError for an operation or
        resource type that does not exist."""
        key = principal, host, operation, resource_type, name
        found = self._decisions.get(key)
        if found is None:
            found = self._decide(principal, host, Operation[operation], ResourceType[resource_type], name)
            if len(self._decisions) >= _DECISIONS_MAX:  # a client can make up names
                self._decisions.clear()
            self._decisions[key] = found
        return found

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        host = comparable_host(host)
        is_about = allowed = False
        for acl in self._about(kind, name):
            is_about = True
            if _is_for(acl, principal, host) and _covers(acl, operation):
                if acl.permission is Permission.DENY:
                    return False
                allowed = True
        return allowed if is_about else self._default

    def _about(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """The rules whose pattern matches."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for size in self._sizes.get(kind, ()):
            if size > len(name):
                break
            yield from self._prefixed.get((kind, name[:size]), ())

    def allows_some(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """May the principal do this to at least one resource of the type? Kafka asks it for IDEMPOTENT_WRITE, which
        WRITE on any topic implies."""
        key = principal, host, operation, resource_type
        found = self._some.get(key)
        if found is None:
            found = self._decide_some(principal, host, Operation[operation], ResourceType[resource_type])
            if len(self._some) >= _DECISIONS_MAX:
                self._some.clear()
            self._some[key] = found
        return found

    def _decide_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        # Kafka asks for a resource of this name, for super users and allow.everyone.if.no.acl.found.
        if self._decide(principal, host, operation, kind, "hardcode"):
            return True
        host = comparable_host(host)
        matching = [
            acl
            for acl in self.acls
            if acl.resource_type is kind
            and acl.operation in (operation, Operation.ALL)
            and _is_for(acl, principal, host)
        ]
        denied = {(acl.pattern_type, acl.name) for acl in matching if acl.permission is Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_overruled(acl, denied) for acl in matching if acl.permission is Permission.ALLOW)


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANYBODY) and (acl.host == WILDCARD or comparable_host(acl.host) == host)


def _covers(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def _is_overruled(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Do rules deny all that this one allows?"""
    if acl.pattern_type is PatternType.LITERAL:
        if acl.name == WILDCARD:
            return False
        if (PatternType.LITERAL, acl.name) in denied:
            return True
    return any((PatternType.PREFIXED, acl.name[:size]) in denied for size in range(1, len(acl.name) + 1))
