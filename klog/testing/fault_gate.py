"""FaultGate: the gate before the handlers of a broker for tests, which applies its faults. It is cheap to make: what
faults do is imported with the first one (klog.testing.effects).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker import Broker
    from klog.broker.context import RequestContext
    from klog.scheduler import Scheduler
    from klog.testing.faults import Fault
    from klog.testing.watching import Watch


class FaultGate:
    """Any thread. scheduler: of requests that are delayed. kill: (topics with partitions whose logs to tear, bytes, ms
    after which the broker starts again, or None), which kills the broker in another thread."""

    def __init__(self, scheduler: Scheduler, kill: Callable[[list[tuple[str, int]], int, int | None], None]) -> None:
        self._scheduler = scheduler
        self._kill = kill
        self._faults: list[Fault] = []
        self._watches: list[Watch] = []
        self._kept: list[RequestContext] = []  # of dropped requests: without a reference they would be closed
        self._delayed: dict[object, Callable[[], None]] = {}  # what lets each delayed request go on
        self._broker: Broker | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # guards the two below
        self._run = 0  # a number for each start of the broker
        self._is_dying = False

    def open(self, broker: Broker) -> None:
        """The broker is about to start."""
        self._broker, self._is_closed = broker, False
        with self._lock:
            self._run += 1
            self._is_dying = False

    def add(self, fault: Fault) -> Fault:
        """Apply a fault from now on."""
        self._faults.append(fault)
        return fault

    def watch(self, watch: Watch) -> Watch:
        """Let it match requests from now on."""
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
        """The broker stops: drop the requests that were dropped, are held or delayed, which closes their connections,
        and those that come before it has stopped."""
        self._is_closed = True
        self._drop_if_closed()

    def _drop_if_closed(self) -> None:
        """To be called after a request was kept, which close() may not have seen."""
        if self._is_closed:
            for each in self._faults:
                each.forget()
            self._delayed.clear()
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
            watch.matches(context, broker)
        fault = next((each for each in list(self._faults) if each.matches(context, broker)), None)
        if fault is None:
            return True
        run = self._run

        def later() -> None:
            if run == self._run and self._apply(fault, context):
                go_on()

        if fault.hold:
            fault.keep(later)
            self._drop_if_closed()
            return False
        if fault.delay_ms:
            key = object()  # a task that is not due yet must not keep the request
            self._delayed[key] = later
            self._drop_if_closed()
            self._scheduler.schedule("delayed by a fault", lambda: self._delayed.pop(key, _nothing)(), fault.delay_ms)
            return False
        return self._apply(fault, context)

    def _apply(self, fault: Fault, context: RequestContext) -> bool:
        """Returns whether the request is to be handled."""
        from klog.testing.effects import apply

        assert self._broker is not None
        return apply(fault, context, self._broker, self)

    def keep(self, context: RequestContext) -> None:
        """Keep a request that gets no response."""
        self._kept.append(context)
        self._drop_if_closed()

    def die(self, torn: list[tuple[str, int]], last_bytes: int, restart_ms: int | None) -> None:
        """Kill the broker, once; until it is dead, nothing is handled any more."""
        with self._lock:
            if self._is_dying:
                return
            self._is_dying = True
        self._kill(torn, last_bytes, restart_ms)


def _nothing() -> None:
    """The request has been dropped."""
