"""Late: a component of a broker that is imported and made when it is first needed, so that the start does not wait for
what most brokers of tests never use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from klog.protocol import ApiKey, Message

    Handler = Callable[[Any, Any], Message | None]


class Component(Protocol):
    """What has handlers of requests."""

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The APIs of this component."""


T = TypeVar("T", bound=Component)


class Late(Generic[T]):
    """Any thread. apis: those of the component. make: makes it; what it raises, get() and the request raise, and the
    next one tries again. made: the component; None before."""

    def __init__(self, apis: Iterable[ApiKey], make: Callable[[], T]) -> None:
        self._apis = tuple(apis)
        self._make = make
        self._lock = threading.Lock()
        self.made: T | None = None

    def get(self) -> T:
        """The component."""
        if self.made is None:
            with self._lock:
                if self.made is None:
                    self.made = self._make()
        return self.made

    def made_now(self) -> T | None:
        """The component; None if it was never needed. Waits while another thread makes it."""
        with self._lock:
            return self.made

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs of the component."""
        made: dict[ApiKey, Handler] = {}

        def handler_of(api: ApiKey) -> Handler:
            def handle(context: Any, request: Any) -> Message | None:
                if not made:
                    made.update(self.get().handlers())
                return made[api](context, request)

            return handle

        return {api: handler_of(api) for api in self._apis}
