"""Leading: the components whose requests go to the leader of a partition, a set of them for each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker import late_apis
from klog.broker.fetch import Fetch
from klog.broker.late import Late
from klog.broker.list_offsets import ListOffsets
from klog.broker.produce import Produce
from klog.clock import SystemClock
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.coordinators import Coordinators
    from klog.broker.metadata import Placement
    from klog.broker.protection import Protection
    from klog.broker.purgatory import Purgatory
    from klog.broker.settings import BrokerSettings
    from klog.broker.share_fetch import ShareFetch
    from klog.scheduler import Scheduler
    from klog.security import Topics

APIS = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.LIST_OFFSETS)
_NO_SHARES = {"ShareSessionsCount": 0.0, "SharePartitionsCount": 0.0}


class Leading:
    """Makes the components of each broker. Any thread. placement: of partitions by several brokers; None: there is
    one."""

    def __init__(
        self,
        settings: BrokerSettings,
        coordinators: Coordinators,
        protection: Protection,
        purgatory: Purgatory,
        waits: Scheduler,
        placement: Callable[[str, int], Placement] | None = None,
    ) -> None:
        self._settings, self._coordinators, self._protection = settings, coordinators, protection
        self._purgatory, self._waits, self._placement = purgatory, waits, placement
        self._fetches: dict[int, Fetch] = {}  # by broker, as the one below
        self._share_fetches: dict[int, Late[ShareFetch]] = {}

    def components(self, node_id: int, led: Topics) -> list[Any]:
        """Those of a broker that leads these partitions."""
        settings, protection = self._settings, self._protection
        fetch = Fetch(
            led,
            self._purgatory,
            SystemClock(),
            max_bytes=settings.fetch_max_bytes,
            session_slots=settings.max_incremental_fetch_session_cache_slots,
            throttle=protection.throttle_fetched,
            quota_bytes=protection.fetch_bytes_max,
        )

        def make_share_fetch() -> ShareFetch:
            from klog.broker.share_fetch import ShareFetch

            return ShareFetch(
                led,
                self._purgatory,
                self._waits,
                self._coordinators.share_kind(),
                max_bytes=settings.fetch_max_bytes,
                throttle=protection.throttle_acquired,
                quota_bytes=protection.fetch_bytes_max,
            )

        share_fetch = Late(late_apis.SHARE_FETCHES, make_share_fetch)
        self._fetches[node_id] = fetch
        self._share_fetches[node_id] = share_fetch
        produce = Produce(led, self._purgatory, self._coordinators.check, protection.throttle_produced, self._placement)
        return [produce, fetch, share_fetch, ListOffsets(led)]

    def session_partitions(self, node_id: int, session_id: int) -> list[tuple[str, int]]:
        """(topic, partition) of all that a fetch session at a broker has; empty for an unknown one."""
        return self._fetches[node_id].session_partitions(session_id)

    def share_session_partitions(self, node_id: int, group_id: str, member_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of all that the share session of a member at a broker has; empty without one."""
        made = self._share_fetches[node_id].made
        return [] if made is None else made.session_partitions(group_id, member_id)

    def metrics(self) -> dict[str, float]:
        """The sums over all brokers."""
        return {
            **_summed([each.metrics() for each in self._fetches.values()]),
            **_summed(
                [_NO_SHARES if each.made is None else each.made.metrics() for each in self._share_fetches.values()]
            ),
        }


def _summed(metrics: list[dict[str, float]]) -> dict[str, float]:
    """The sums of values of the same name."""
    return {name: sum(each[name] for each in metrics) for name in metrics[0]}
