"""How many connections there are, by listener and address, and whether another one may come. Kafka: ConnectionQuotas.

A connection that is over a limit of a listener or of the broker waits in the kernel's queue until another one ends; one
that is over a limit of its address is closed.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from klog.arguments import INT_MAX
from klog.clock import Clock
from klog.network.config import NetworkConfig
from klog.network.listener import Listener
from klog.network.rates import Rate

_ADDRESSES_MAX = 10_000  # whose rates are remembered


class ConnectionQuotas:
    """Counts and rates. Any thread; guarded by `_lock`: all fields."""

    def __init__(self, listeners: list[Listener], config: NetworkConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._by_listener: Counter[Listener] = Counter()
        self._by_address: Counter[str] = Counter()
        self._broker_rate = self._rate(config.max_connection_creation_rate)
        self._listener_rates = {each: self._rate(each.max_connection_creation_rate) for each in listeners}
        self._address_rates: OrderedDict[str, Rate] = OrderedDict()

    def _rate(self, bound: int) -> Rate | None:
        """None for no limit."""
        if bound == INT_MAX:
            return None
        return Rate(bound, self._config.quota_window_num, self._config.quota_window_size_seconds)

    def count(self, listener: Listener | None = None) -> int:
        """Connections of a listener, or all."""
        with self._lock:
            return self._by_listener.total() if listener is None else self._by_listener[listener]

    def has_slot(self, listener: Listener) -> bool:
        """May this listener accept a connection, by the numbers of connections?"""
        with self._lock:
            if self._by_listener[listener] >= listener.max_connections:
                return False
            return listener.protected or self._by_listener.total() < self._config.max_connections

    def exceeds(self) -> bool:
        """Are there more connections than max.connections? Only a protected listener makes more."""
        with self._lock:
            return self._by_listener.total() > self._config.max_connections

    def rate_delay(self, listener: Listener) -> float:
        """Count a new connection in the rates of its listener and of the broker. Returns the seconds until the next one
        may be accepted; 0: at once."""
        rates = [self._listener_rates[listener], None if listener.protected else self._broker_rate]
        now, delay = self._clock.monotonic(), 0.0
        with self._lock:
            for rate in rates:
                if rate is not None:
                    rate.record(now)
                    delay = max(delay, rate.excess_seconds(now))
        return delay

    def address_delay(self, address: str) -> float:
        """Count a new connection in the rate of its address. Returns the seconds after which to close it, and then does
        not count it; 0: it is accepted."""
        bound = self._config.connection_creation_rate_per_ip
        if bound == INT_MAX:
            return 0.0
        now = self._clock.monotonic()
        with self._lock:
            rate = self._address_rates.pop(address, None) or self._rate(bound)
            assert rate is not None
            self._address_rates[address] = rate  # the last one is the newest
            if len(self._address_rates) > _ADDRESSES_MAX:
                self._address_rates.popitem(last=False)
            rate.record(now)
            delay = rate.excess_seconds(now)
            if delay > 0:
                rate.record(now, -1)
        return delay

    def add(self, listener: Listener, address: str) -> bool:
        """Count a connection. False: its address has too many, and it is not counted."""
        limit = self._config.max_connections_per_ip_overrides.get(address, self._config.max_connections_per_ip)
        with self._lock:
            if self._by_address[address] >= limit:
                return False
            self._by_address[address] += 1
            self._by_listener[listener] += 1
        return True

    def remove(self, listener: Listener, address: str) -> None:
        """A counted connection has been closed. ValueError for an address without connections."""
        with self._lock:
            if self._by_address[address] <= 0:
                raise ValueError(f"address={address!r}: no connection of it is counted")
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            self._by_listener[listener] -= 1
