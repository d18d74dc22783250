"""Access rules as JSON, for klog-acls.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.security import acl_requests
from klog.security.acl_types import Acl, Operation, PatternType, Permission, ResourceType
from klog.security.refusals import ItemRefused
from klog.security.state_file import Malformed

_FIELDS = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": Operation,
    "permission": Permission,
}


def encoded(acl: Acl) -> dict[str, str]:
    """Return the entry of a rule."""
    return {
        "resource_type": acl.resource_type.name,
        "pattern_type": acl.pattern_type.name,
        "name": acl.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def decoded(document: Mapping[str, Any]) -> list[Acl]:
    """Return the rules of a document. Raises Malformed, and others of versioned.MALFORMED."""
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
    except ItemRefused as error:
        raise Malformed(f"{where}: {error.reason}") from None
    return acl
