"""Faults on demand: what a test wants to go wrong between a client and the broker.

    before the effect   error, disconnect="before", drop: the broker does not see the request
    after the effect    disconnect="after", half: the request is handled, its response is lost or cut
    around it           delay_ms: the request is handled later

Each fault counts the requests that it has met, so a test can wait for them and check their number.
"""

from __future__ import annotations

import fnmatch
import threading
from typing import TYPE_CHECKING, Any, Literal

from klog import arguments
from klog.broker.error_responses import error_response
from klog.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klog.broker.context import RequestContext
    from klog.protocol import Message
    from klog.scheduler import Scheduler
    from klog.security import Topics

Disconnect = Literal["before", "after"]
_TOPIC_ARRAYS = ("topic_data", "topics", "v3_and_below_topics")
_PARTITION_ARRAYS = ("partition_data", "partitions", "partition_indexes")
_HALF = 0.5


class Fault:
    """One fault. Made by TestBroker.inject, which describes the arguments. Any thread.

    hits: the number of requests that it has met. is_active: whether it meets more of them.
    """

    def __init__(
        self,
        api: ApiKey | str | None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        count: int | None = 1,
        skip: int = 0,
        error: ErrorCode | str | int | None = None,
        delay_ms: int = 0,
        disconnect: Disconnect | None = None,
        half: bool = False,
        drop: bool = False,
    ) -> None:
        self.api = None if api is None else api_of(api)
        self.topic = None if topic is None else arguments.text("topic", topic)
        self.partition = None if partition is None else arguments.whole("partition", partition, 0)
        self.client_id = None if client_id is None else arguments.text("client_id", client_id)
        self.error = None if error is None else code_named(error)
        self.delay_ms = arguments.whole("delay_ms", delay_ms, 0)
        self.disconnect = disconnect
        if disconnect is not None:
            arguments.chosen("disconnect", disconnect, ("before", "after"))
        self.half = arguments.flag("half", half)
        self.drop = arguments.flag("drop", drop)
        effects = sum((self.error is not None, disconnect is not None, self.half, self.drop))
        if effects > 1:
            raise ValueError("one of error, disconnect, half and drop, with delay_ms or without it")
        if effects == 0 and self.delay_ms == 0:
            raise ValueError("a fault needs one of error, delay_ms, disconnect, half and drop")
        if partition is not None and topic is None:
            raise ValueError(f"partition={partition}: give the topic, too")
        self._left = None if count is None else arguments.whole("count", count, 1)
        self._skip = arguments.whole("skip", skip, 0)
        self._changed = threading.Condition()
        self.hits = 0

    def __repr__(self) -> str:
        where = "any request" if self.api is None else self.api.message
        return f"<Fault of {where}, {self.hits} hits{'' if self.is_active else ', over'}>"

    @property
    def is_active(self) -> bool:
        """Does it meet more requests?"""
        return self._left is None or self._left > 0

    def stop(self) -> None:
        """Meet no more requests."""
        with self._changed:
            self._left = 0

    def wait(self, hits: int = 1, timeout: float = 10.0) -> None:
        """Wait until it has met so many requests. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self!r}: {hits} hits expected within {timeout} s")

    def meets(self, context: RequestContext, topics: Topics) -> bool:
        """Does it concern this request? Counts it if so."""
        if self.api is not None and context.api is not self.api:
            return False
        if self.client_id is not None and not fnmatch.fnmatchcase(context.client_id, self.client_id):
            return False
        if self.topic is not None and not any(
            name == self.topic and (self.partition is None or number == self.partition)
            for name, number in partitions_of(context.message, topics)
        ):
            return False
        with self._changed:
            if not self.is_active:
                return False
            if self._skip > 0:
                self._skip -= 1
                return False
            if self._left is not None:
                self._left -= 1
            self.hits += 1
            self._changed.notify_all()
        return True


def api_of(api: ApiKey | str) -> ApiKey:
    """The ApiKey of a name: "produce", "Produce", "JOIN_GROUP", "joinGroup"."""
    if isinstance(api, ApiKey):
        return api
    wanted = arguments.text("api", api).replace("_", "").lower()
    for each in ApiKey:
        if each.name.replace("_", "").lower() == wanted:
            return each
    raise ValueError(f"api={api!r}: no such API; one of {', '.join(each.name.lower() for each in ApiKey)}")


def code_named(error: ErrorCode | str | int) -> ErrorCode:
    """The ErrorCode of a name or number."""
    if isinstance(error, str):
        try:
            return ErrorCode[error.upper()]
        except KeyError:
            raise ValueError(f"error={error!r}: no such error of Kafka, as NOT_LEADER_OR_FOLLOWER is") from None
    number = arguments.whole("error", error)
    for code in ErrorCode:
        if code == number:
            return code
    raise ValueError(f"error={number}: no such error code of Kafka")


def partitions_of(message: Any, topics: Topics) -> Iterator[tuple[str, int | None]]:
    """(topic, partition) of all that a request names; partition None where it names the topic alone."""
    for array in _TOPIC_ARRAYS:
        for topic in getattr(message, array, None) or ():
            if isinstance(topic, str):
                yield topic, None
                continue
            name = getattr(topic, "name", None) or getattr(topic, "topic", None)
            if not name:
                name = topics.name_of(topic.topic_id) or ""
            yield name, None
            for inner in _PARTITION_ARRAYS:
                for each in getattr(topic, inner, None) or ():
                    yield name, each if isinstance(each, int) else _index(each)


def _index(partition: Any) -> int:
    for name in ("index", "partition", "partition_index"):
        found = getattr(partition, name, None)
        if found is not None:
            return int(found)
    return -1


class FaultGate:
    """Applies faults to requests. Any thread."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._faults: list[Fault] = []
        self._kept: list[RequestContext] = []  # of dropped requests: without a reference they would be closed
        self.topics: Topics | None = None

    def add(self, fault: Fault) -> Fault:
        """Apply a fault from now on."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Apply no fault any more."""
        for each in self._faults:
            each.stop()
        self._faults.clear()

    def close(self) -> None:
        """Close the connections of the requests that were dropped."""
        while self._kept:
            self._kept.pop().close()

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        """Apply the first fault that concerns the request."""
        if not self._faults:
            return True
        assert self.topics is not None
        fault = next((each for each in list(self._faults) if each.meets(context, self.topics)), None)
        if fault is None:
            return True
        if fault.delay_ms:

            def later() -> None:
                if self._apply(fault, context):
                    go_on()

            self._scheduler.schedule("delayed by a fault", later, fault.delay_ms)
            return False
        return self._apply(fault, context)

    def _apply(self, fault: Fault, context: RequestContext) -> bool:
        """Returns whether the request is to be handled."""
        if fault.error is not None:
            context.respond(error_response(context.api, context.version, context.message, fault.error))
            return False
        if fault.disconnect == "before":
            context.close()
            return False
        if fault.drop:
            self._kept.append(context)
            return False
        if fault.disconnect == "after":
            context.before_response = lambda response: _closed(context)
        elif fault.half:
            context.before_response = lambda response: _cut(context, response)
        return True


def _closed(context: RequestContext) -> None:
    context.close()


def _cut(context: RequestContext, response: Message) -> None:
    context.respond_in_part(response, _HALF)
