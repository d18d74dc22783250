"""DescribeAcls, CreateAcls and DeleteAcls. Kafka: AclApis, AclControlManager."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from klog.logger import logger_of
from klog.protocol import ErrorCode, messages
from klog.security.acl_types import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from klog.security.refusals import CLUSTER_NAME, UNAUTHORIZED, ItemRefused, cluster_authorized, invalid

if TYPE_CHECKING:
    from klog.security.context import Context

_log = logger_of("security")
_DISABLED = "No Authorizer is configured on the broker"
_NOT_WRITTEN = "The rules could not be written"


class AclStore(Protocol):
    """Where the rules are: klog.security.acls.Authorizer."""

    @property
    def enabled(self) -> bool:
        """Is there an authorizer?"""

    def find(self, wanted: AclFilter) -> list[Acl]:
        """The rules that match, sorted."""

    def change(self, *, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        """Remove rules and add others, durably; all or none."""


def check(acl: Acl) -> None:
    """Raises ItemRefused for a rule that Kafka would refuse."""
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        raise invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise invalid(f"Invalid permissionType {acl.permission.name}")
    if not acl.name:
        raise invalid("Invalid empty resource name")
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise invalid("Invalid principal: <type>:<name> expected")
    if not acl.host:
        raise invalid("Invalid empty host")


def _refusal(store: AclStore, context: Context, operation: str) -> tuple[ErrorCode, str] | None:
    """Why the whole request is refused, if it is."""
    if not cluster_authorized(context.authorized, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, UNAUTHORIZED
    return None if store.enabled else (ErrorCode.SECURITY_DISABLED, _DISABLED)


def describe(
    store: AclStore, context: Context, request: messages.DescribeAcls.Request
) -> messages.DescribeAcls.Response:
    response = messages.DescribeAcls.Response
    refusal = _refusal(store, context, "DESCRIBE")
    if refusal is not None:
        return response(error_code=refusal[0], error_message=refusal[1])
    try:
        wanted = _filter(request)
    except ItemRefused as error:
        return response(error_code=error.code, error_message=error.reason)
    resources = []
    for (kind, pattern, name), acls in groupby(
        store.find(wanted), lambda acl: (acl.resource_type, acl.pattern_type, acl.name)
    ):
        rules = [
            response.Acl(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in acls
        ]
        resources.append(response.Resource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=rules))
    return response(resources=resources)


def create(store: AclStore, context: Context, request: messages.CreateAcls.Request) -> messages.CreateAcls.Response:
    response = messages.CreateAcls.Response
    refusal = _refusal(store, context, "ALTER")
    if refusal is not None:
        code, reason = refusal
        return response(results=[response.Result(error_code=code, error_message=reason) for _ in request.creations])
    acls, results = [], []
    for each in request.creations:
        try:
            acls.append(_acl(each))
            results.append(response.Result())
        except ItemRefused as error:
            results.append(response.Result(error_code=error.code, error_message=error.reason))
    if not _written(store, context, "acls_created", add=acls):
        results = [
            each
            if each.error_code
            else response.Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=_NOT_WRITTEN)
            for each in results
        ]
    return response(results=results)


def delete(store: AclStore, context: Context, request: messages.DeleteAcls.Request) -> messages.DeleteAcls.Response:
    response = messages.DeleteAcls.Response
    result = response.FilterResult
    refusal = _refusal(store, context, "ALTER")
    if refusal is not None:
        code, reason = refusal
        return response(filter_results=[result(error_code=code, error_message=reason) for _ in request.filters])
    found: list[list[Acl]] = []
    results = []
    for each in request.filters:
        try:
            acls = store.find(_filter(each))
            results.append(result(matching_acls=[_matching(acl) for acl in acls]))
            found.append(acls)
        except ItemRefused as error:
            results.append(result(error_code=error.code, error_message=error.reason))
    if not _written(store, context, "acls_deleted", remove=[acl for acls in found for acl in acls]):
        results = [
            each if each.error_code else result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=_NOT_WRITTEN)
            for each in results
        ]
    return response(filter_results=results)


def _written(
    store: AclStore, context: Context, event: str, *, add: list[Acl] | None = None, remove: list[Acl] | None = None
) -> bool:
    """Change the rules. False if the disk refused it; then nothing has changed."""
    try:
        store.change(add=add or (), remove=remove or ())
    except OSError as error:
        _log.error("event=acls_not_written reason=%s", error)
        return False
    for acl in add or remove or ():
        _log.info("event=%s by=%r acl=%r", event, context.principal, acl)
    return True


def _matching(acl: Acl) -> messages.DeleteAcls.Response.Acl:
    return messages.DeleteAcls.Response.Acl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _acl(each: messages.CreateAcls.Request.Creation) -> Acl:
    """Raises ItemRefused."""
    acl = Acl(
        _member(ResourceType, each.resource_type),
        _member(PatternType, each.resource_pattern_type),
        each.resource_name,
        each.principal,
        each.host,
        _member(Operation, each.operation),
        _member(Permission, each.permission_type),
    )
    check(acl)
    return acl


def _filter(each: messages.DescribeAcls.Request | messages.DeleteAcls.Request.Filter) -> AclFilter:
    """Raises ItemRefused."""
    found = AclFilter(
        _member(ResourceType, each.resource_type_filter),
        _member(PatternType, each.pattern_type_filter),
        each.resource_name_filter,
        each.principal_filter,
        each.host_filter,
        _member(Operation, each.operation),
        _member(Permission, each.permission_type),
    )
    if found.resource_type is ResourceType.UNKNOWN or found.pattern_type is PatternType.UNKNOWN:
        raise invalid("Unknown patternFilter.")
    if found.operation is Operation.UNKNOWN or found.permission is Permission.UNKNOWN:
        raise invalid("Unknown entryFilter.")
    return found


def _member(kind: type[Any], number: int) -> Any:
    """UNKNOWN for a number that Kafka does not have, as there."""
    return kind(number) if number in kind._value2member_map_ else kind.UNKNOWN
