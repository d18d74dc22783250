"""DescribeClientQuotas and AlterClientQuotas. Kafka: ClientQuotasImage.describe, ClientQuotaControlManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from klog.logger import logger_of
from klog.protocol import ErrorCode, messages
from klog.security.addresses import comparable_host
from klog.security.quota_entities import CLIENT_ID, DEFAULT, IP, USER, Entity, check_value, entity_of
from klog.security.refusals import UNAUTHORIZED, ItemRefused, cluster_authorized, invalid

if TYPE_CHECKING:
    from klog.security.context import Context

_log = logger_of("security")
_EXACT, _DEFAULT, _ANY = 0, 1, 2  # match_type


class QuotaStore(Protocol):
    """Where the quotas are: klog.security.quotas.ClientQuotas."""

    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        """All quotas by entity."""

    def change(self, changes: Mapping[Entity, Mapping[str, float | None]]) -> None:
        """Set or remove quotas, durably; all or none."""


def describe(
    store: QuotaStore, context: Context, request: messages.DescribeClientQuotas.Request
) -> messages.DescribeClientQuotas.Response:
    response = messages.DescribeClientQuotas.Response
    if not cluster_authorized(context.authorized, "DESCRIBE_CONFIGS"):
        return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=UNAUTHORIZED, entries=None)
    try:
        components = _components(request)
    except ItemRefused as error:
        return response(error_code=error.code, error_message=error.reason, entries=None)
    entries = []
    for entity, values in store.quotas().items():
        if not _matches(entity, components, request.strict):
            continue
        entries.append(
            response.Entry(
                entity=[response.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[response.Value(key=key, value=value) for key, value in values.items()],
            )
        )
    return response(entries=entries)


def _components(request: messages.DescribeClientQuotas.Request) -> dict[str, tuple[int, str | None]]:
    """(match type, name) by entity type. Raises ItemRefused."""
    found: dict[str, tuple[int, str | None]] = {}
    for each in request.components:
        if not each.entity_type:
            raise invalid("Invalid empty entity type.")
        if each.entity_type in found:
            raise invalid(f"Entity type {each.entity_type} cannot appear more than once in the filter.")
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise ItemRefused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}")
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise invalid(f"Unknown match type {each.match_type}")
        if (each.match is None) == (each.match_type == _EXACT):
            raise invalid("A filter component has a match string if its match type is exact, and only then.")
        name = comparable_host(each.match) if each.entity_type == IP and each.match is not None else each.match
        found[each.entity_type] = each.match_type, name
    if IP in found and len(found) > 1:
        raise invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return found


def _matches(entity: Entity, components: Mapping[str, tuple[int, str | None]], strict: bool) -> bool:
    parts = dict(entity)
    if strict and len(parts) != len(components):
        return False
    for kind, (match_type, name) in components.items():
        if kind not in parts:
            return False
        if match_type != _ANY and parts[kind] != (name if match_type == _EXACT else DEFAULT):
            return False
    return True


def alter(
    store: QuotaStore, context: Context, request: messages.AlterClientQuotas.Request
) -> messages.AlterClientQuotas.Response:
    response = messages.AlterClientQuotas.Response
    times = Counter(_parts(each) for each in request.entries)
    results: list[tuple[ErrorCode, str | None]] = []
    changes: dict[Entity, dict[str, float | None]] = {}
    for each in request.entries:
        try:
            if not cluster_authorized(context.authorized, "ALTER_CONFIGS"):
                raise ItemRefused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, UNAUTHORIZED)
            if times[_parts(each)] > 1:
                raise invalid("Ignoring duplicate entity")
            entity, values = _change(each)
            changes[entity] = values
            results.append((ErrorCode.NONE, None))
        except ItemRefused as error:
            results.append((error.code, error.reason))
    if changes and not request.validate_only:
        try:
            store.change(changes)
            _log.info("event=client_quotas_altered entities=%r by=%r", list(changes), context.principal)
        except OSError as failure:
            _log.error("event=client_quotas_not_written reason=%s", failure)
            failed = ErrorCode.KAFKA_STORAGE_ERROR, "The quotas could not be written"
            results = [result if result[0] else failed for result in results]
    return response(
        entries=[
            response.Entry(
                error_code=code,
                error_message=reason,
                entity=[
                    response.Entity(entity_type=part.entity_type, entity_name=part.entity_name) for part in each.entity
                ],
            )
            for each, (code, reason) in zip(request.entries, results, strict=True)
        ]
    )


def _parts(each: messages.AlterClientQuotas.Request.Entry) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in each.entity)


def _change(each: messages.AlterClientQuotas.Request.Entry) -> tuple[Entity, dict[str, float | None]]:
    """The entity and its new values, None to remove one. Raises ItemRefused."""
    parts = {part.entity_type: part.entity_name for part in each.entity}
    if len(parts) != len(each.entity):
        raise invalid("Invalid client quota entity, duplicate entity entry")
    entity = entity_of(parts)
    values: dict[str, float | None] = {}
    for op in each.ops:
        if op.key in values:
            raise invalid(f"Duplicate quota key {op.key} not updating quota for this entity")
        if not op.remove:
            check_value(entity, op.key, op.value)
        values[op.key] = None if op.remove else op.value
    return entity, values
