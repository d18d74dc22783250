"""ConsumerGroupDescribe and ShareGroupDescribe: the checks and the order that both have. Kafka: KafkaApis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog import security
from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.security.context import Context


def describe_groups(context: Context, request: Any, made: Any, described: Callable[[str], Any]) -> Any:
    """Describe groups, each once, in the order of the request. made: the class of the response. described: the
    description of a group; raises Refused."""
    found = []
    for group_id in dict.fromkeys(request.group_ids):
        try:
            found.append(_checked(context, group_id, described, operations=request.include_authorized_operations))
        except Refused as refused:
            found.append(made.Group(group_id=group_id, error_code=refused.code, error_message=str(refused)))
    return made(groups=found)


def _checked(context: Context, group_id: str, described: Callable[[str], Any], *, operations: bool) -> Any:
    if not context.authorized("DESCRIBE", "GROUP", group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED.name)
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    found = described(group_id)
    assignments = [member.assignment for member in found.members]
    assignments += [member.target_assignment for member in found.members if hasattr(member, "target_assignment")]
    names = {topic.topic_name for each in assignments for topic in each.topic_partitions}
    if not all(context.authorized("DESCRIBE", "TOPIC", name) for name in names):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    if operations:
        found.authorized_operations = security.authorized_operations(context.authorized, "GROUP", group_id)
    return found
