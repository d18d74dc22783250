"""What a fault does to a request, and to its response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from klog.broker.error_responses import divide, error_response, join
from klog.protocol import ApiKey, ErrorCode
from klog.testing.named import partition_of, topic_of
from klog.testing.watching import partitions_of

if TYPE_CHECKING:
    from klog.broker import Broker
    from klog.broker.context import RequestContext
    from klog.protocol import Message
    from klog.testing.faults import Fault

_HALF = 0.5


class Gate(Protocol):
    """What it needs of a FaultGate."""

    def keep(self, context: RequestContext) -> None: ...
    def die(self, torn: list[tuple[str, int]], last_bytes: int, restart_ms: int | None) -> None: ...


def apply(fault: Fault, context: RequestContext, broker: Broker, gate: Gate) -> bool:
    """Do what a fault does to a request. Returns whether the request is to be handled."""
    if fault.error is not None:
        return _refuse(fault, context, broker)
    if fault.respond is not None:
        response = fault.respond(context)
        if response is not None:
            context.respond(response)
        return response is None
    if fault.disconnect == "before":
        context.close()
        return False
    if fault.drop:
        gate.keep(context)
        return False
    if fault.kill == "before":
        _die(fault, context, broker, gate)
        return False
    if fault.kill == "after":
        context.before_response = lambda response: _die(fault, context, broker, gate)
    elif fault.disconnect == "after":
        context.before_response = lambda response: _closed(context)
    elif fault.half:
        context.before_response = lambda response: _cut(context, response)
    return True


def _refuse(fault: Fault, context: RequestContext, broker: Broker) -> bool:
    api, request, code = context.api, context.message, fault.error
    assert code is not None
    if fault.is_of_parts(api):
        if api is ApiKey.METADATA:
            context.before_response = lambda response: _without_topics(fault, response)
        else:
            context.refusal = fault.refuses
        return True
    topics = broker.topics
    met = None
    if fault.topic is not None:
        met = divide(
            api,
            request,
            lambda topic, partition: fault.is_of(
                topic_of(topic, topics), fault.partition if partition is None else partition_of(partition)
            ),
        )
    has_response = api is not ApiKey.PRODUCE or request.acks != 0
    if met is not None:
        failed = error_response(api, context.version, met, code)
        context.before_response = lambda response: _joined(api, response, failed) if has_response else _closed(context)
        return True
    if api is ApiKey.API_VERSIONS and code is ErrorCode.UNSUPPORTED_VERSION:
        context.respond_in(0, error_response(api, 0, request, code))  # as a broker that does not know the version
    elif has_response:
        context.respond(error_response(api, context.version, request, code))
    else:
        context.close()  # as Kafka does
    return False


def _die(fault: Fault, context: RequestContext, broker: Broker, gate: Gate) -> None:
    gate.keep(context)
    torn = [
        (topic, partition)
        for topic, partition in partitions_of(context, broker)
        if fault.tear and topic is not None and partition is not None and fault.is_of(topic, partition)
    ]
    gate.die(torn, fault.tear, fault.restart_ms)


def _closed(context: RequestContext) -> None:
    context.close()


def _cut(context: RequestContext, response: Message | None) -> None:
    if response is None:
        context.close()
    else:
        context.respond_in_part(response, _HALF)


def _joined(api: ApiKey, response: Message | None, failed: Message) -> Message | None:
    if response is not None:
        join(api, response, failed)
    return response


def _without_topics(fault: Fault, response: Any) -> Message:
    for topic in response.topics:
        if topic.name is not None and fault.refuses(topic.name, fault.partition):
            topic.error_code, topic.partitions = fault.error, []
    return response  # type: ignore[no-any-return]
