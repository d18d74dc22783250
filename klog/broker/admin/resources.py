"""What has a configuration: topics, brokers, the loggers of a broker, and groups. Kafka: ConfigResource.

Kafka has subscriptions of client metrics, too. This broker has none, and refuses them as it would an unknown type.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from klog.broker.admin.failures import Refused
from klog.protocol import ErrorCode
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from klog.security import Context


class ResourceType(IntEnum):
    """The types that this broker has."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


def resource_type(number: int) -> ResourceType:
    """The type of a number in a request. Raises Refused."""
    try:
        return ResourceType(number)
    except ValueError:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {number} have no configuration here") from None


def check_allowed(context: Context, operation: str, kind: ResourceType, name: str) -> None:
    """Raise Refused unless the client may do this with a resource's configuration."""
    if kind is ResourceType.TOPIC:
        if not context.authorized(operation, "TOPIC", name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed for this topic")
    elif kind is ResourceType.GROUP:
        if not context.authorized(operation, "GROUP", name):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed for this group")
    elif not cluster_authorized(context.authorized, operation):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed for this cluster")


def check_group(name: str) -> None:
    """Raise Refused unless a resource's name can be that of a group."""
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "the name of a group expected: there are no defaults of all groups")


def check_broker(name: str, brokers: tuple[int, ...], *, may_be_all: bool) -> None:
    """Raise Refused unless a resource's name is the id of a broker of this process, all of which have the same
    configuration; or, if it may be all brokers, empty."""
    if not name and may_be_all:
        return
    ids = [str(each) for each in brokers]
    if name not in ids:
        raise Refused(ErrorCode.INVALID_REQUEST, f"broker {name!r}: this is broker {', '.join(ids)}")
