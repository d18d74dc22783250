"""FaultGate: applies the faults of a test to the requests of a broker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from klog.broker.error_responses import divide, error_response, join
from klog.protocol import ApiKey
from klog.testing.faults import Fault
from klog.testing.named import partition_of, topic_of
from klog.testing.watching import partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker import Broker
    from klog.broker.context import RequestContext
    from klog.protocol import Message
    from klog.scheduler import Scheduler
    from klog.testing.watching import Watch

_HALF = 0.5


class FaultGate:
    """Any thread. scheduler: of requests that are delayed. kill: (topics with partitions whose logs to tear, bytes, ms
    after which the broker starts again, or None), which kills the broker in another thread."""

    def __init__(self, scheduler: Scheduler, kill: Callable[[list[tuple[str, int]], int, int | None], None]) -> None:
        self._scheduler = scheduler
        self._kill = kill
        self._faults: list[Fault] = []
        self._watches: list[Watch] = []
        self._kept: list[RequestContext] = []  # of dropped requests: without a reference they would be closed
        self._broker: Broker | None = None
        self._lock = threading.Lock()  # guards the two below
        self._run = 0  # a number for each start of the broker
        self._is_dying = False

    def open(self, broker: Broker) -> None:
        """The broker is about to start."""
        self._broker = broker
        with self._lock:
            self._run += 1
            self._is_dying = False

    def add(self, fault: Fault) -> Fault:
        """Apply a fault from now on."""
        self._faults.append(fault)
        return fault

    def watch(self, watch: Watch) -> Watch:
        """Let it meet requests from now on."""
        self._watches.append(watch)
        return watch

    @property
    def faults(self) -> list[Fault]:
        """All faults since the last clear()."""
        return list(self._faults)

    def clear(self) -> None:
        """Apply no fault any more."""
        faults, self._faults = self._faults, []
        for each in faults:
            each.stop()

    def close(self) -> None:
        """The broker stops: drop the requests that were dropped or are held, which closes their connections."""
        for each in self._faults:
            each.forget()
        self._kept.clear()

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        """Apply the first fault that concerns the request."""
        if self._is_dying:
            self._kept.append(context)
            return False
        if not (self._faults or self._watches):
            return True
        broker = self._broker
        assert broker is not None
        for watch in list(self._watches):
            watch.meets(context, broker)
        fault = next((each for each in list(self._faults) if each.meets(context, broker)), None)
        if fault is None:
            return True
        run = self._run

        def later() -> None:
            if run == self._run and self._apply(fault, context):
                go_on()

        if fault.hold:
            fault.keep(later)
            return False
        if fault.delay_ms:
            self._scheduler.schedule("delayed by a fault", later, fault.delay_ms)
            return False
        return self._apply(fault, context)

    def _apply(self, fault: Fault, context: RequestContext) -> bool:
        """Returns whether the request is to be handled."""
        if fault.error is not None:
            return self._refuse(fault, context)
        if fault.respond is not None:
            response = fault.respond(context)
            if response is not None:
                context.respond(response)
            return response is None
        if fault.disconnect == "before":
            context.close()
            return False
        if fault.drop:
            self._kept.append(context)
            return False
        if fault.kill == "before":
            self._die(fault, context, None)
            return False
        if fault.kill == "after":
            context.before_response = lambda response: self._die(fault, context, response)
        elif fault.disconnect == "after":
            context.before_response = lambda response: _closed(context)
        elif fault.half:
            context.before_response = lambda response: _cut(context, response)
        return True

    def _refuse(self, fault: Fault, context: RequestContext) -> bool:
        api, request, code, broker = context.api, context.message, fault.error, self._broker
        assert code is not None
        assert broker is not None
        if api is ApiKey.FETCH and not fault.is_of_whole(api):
            context.refusal = fault.refuses
            return True
        if api is ApiKey.METADATA and not fault.is_of_whole(api):
            context.before_response = lambda response: _without_topics(fault, response)
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
            context.before_response = lambda response: (
                _joined(api, response, failed) if has_response else _closed(context)
            )
            return True
        if has_response:
            context.respond(error_response(api, context.version, request, code))
        else:
            context.close()  # as Kafka does
        return False

    def _die(self, fault: Fault, context: RequestContext, response: Message | None) -> None:
        """The broker is killed; until it is, nothing is handled any more."""
        self._kept.append(context)
        with self._lock:
            if self._is_dying:
                return
            self._is_dying = True
        assert self._broker is not None
        tears = [
            (topic, partition)
            for topic, partition in partitions_of(context, self._broker)
            if fault.tear and topic is not None and partition is not None and fault.is_of(topic, partition)
        ]
        self._kill(tears, fault.tear, fault.restart_ms)


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
