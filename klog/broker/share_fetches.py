"""ShareFetches: ShareFetch and ShareAcknowledge at one broker, whose modules are loaded for the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.locks import OwnLock
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.context import RequestContext
    from klog.broker.purgatory import Purgatory
    from klog.broker.share_fetch import ShareFetch
    from klog.coordinator.share import ShareKind
    from klog.protocol import Message
    from klog.scheduler import Scheduler
    from klog.security import Topics


class ShareFetches:
    """Any thread. The arguments are those of ShareFetch."""

    def __init__(
        self,
        topics: Topics,
        purgatory: Purgatory,
        scheduler: Scheduler,
        kind: ShareKind,
        *,
        max_bytes: int,
        throttle: Callable[[RequestContext, int], int] | None = None,
    ) -> None:
        self._arguments = topics, purgatory, scheduler, kind
        self._max_bytes = max_bytes
        self._throttle = throttle
        self._loading = OwnLock()
        self._loaded: ShareFetch | None = None

    @property
    def _fetch(self) -> ShareFetch:
        loaded = self._loaded
        if loaded is None:
            from klog.broker.share_fetch import ShareFetch

            with self._loading:
                loaded = self._loaded
                if loaded is None:
                    loaded = self._loaded = ShareFetch(
                        *self._arguments, max_bytes=self._max_bytes, throttle=self._throttle
                    )
        return loaded

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {
            ApiKey.SHARE_FETCH: lambda context, request: self._fetch.fetch(context, request),
            ApiKey.SHARE_ACKNOWLEDGE: lambda context, request: self._fetch.acknowledge(context, request),
        }

    def metrics(self) -> dict[str, float]:
        """The share sessions, under Kafka's names."""
        loaded = self._loaded
        return {"ShareSessionsCount": 0, "SharePartitionsCount": 0} if loaded is None else loaded.metrics()
