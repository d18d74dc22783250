"""A slow model of the decisions of Kafka's authorizer, and random rules for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hypothesis import strategies as st

from klog.security.acl_types import Acl, Operation, PatternType, Permission, ResourceType

PRINCIPALS = ("User:a", "User:b", "Group:a")
HOSTS = ("10.0.0.1", "10.0.0.2")
TYPES = ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
OPERATIONS = ("READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "CREATE")
NAMES = st.text("ab", min_size=1, max_size=4)
ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType[name] for name in TYPES]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    NAMES | st.just("*"),
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([Operation[name] for name in (*OPERATIONS, "ALL")]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
IMPLIED = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}


def allows(
    acls: Iterable[Acl],
    supers: Collection[str],
    default: bool,
    principal: str,
    host: str,
    operation: str,
    kind: str,
    name: str,
) -> bool:
    """Return whether the operation on the resource is allowed."""
    if principal in supers:
        return True
    for_name = [acl for acl in acls if acl.resource_type.name == kind and _matches_name(acl, name)]
    matching = [acl for acl in for_name if _matches_client(acl, principal, host)]
    if any(acl.permission.name == "DENY" and acl.operation.name in (operation, "ALL") for acl in matching):
        return False
    enough = (operation, "ALL", *IMPLIED.get(operation, ()))
    if any(acl.permission.name == "ALLOW" and acl.operation.name in enough for acl in matching):
        return True
    return default and not for_name


def allows_some(
    acls: Iterable[Acl], supers: Collection[str], default: bool, principal: str, host: str, operation: str, kind: str
) -> bool:
    """Return whether the operation is allowed on any resource of this type.

    As in Kafka, a rule for some names counts only if it has the operation itself or ALL.
    """
    if allows(acls, supers, default, principal, host, operation, kind, "hardcode"):
        return True
    exact = [
        acl
        for acl in acls
        if acl.resource_type.name == kind
        and acl.operation.name in (operation, "ALL")
        and _matches_client(acl, principal, host)
    ]
    denying = [acl for acl in exact if acl.permission.name == "DENY"]
    if any(acl.name == "*" and acl.pattern_type.name == "LITERAL" for acl in denying):
        return False
    for acl in exact:
        if acl.permission.name == "ALLOW":
            if acl.name == "*" and acl.pattern_type.name == "LITERAL":
                return True
            covered = any(
                (acl.name.startswith(other.name))
                if other.pattern_type.name == "PREFIXED"
                else acl.pattern_type.name == "LITERAL" and acl.name == other.name
                for other in denying
            )
            if not covered:
                return True
    return False


def _matches_name(acl: Acl, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in ("*", name)


def _matches_client(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")
