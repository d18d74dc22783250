"""Client quotas: how long a client waits. `klog-quotas.json` in the first log.dir. Kafka: ClientQuotaManager,
ClientRequestQuotaManager, ControllerMutationQuotaManager.

    {"version": 1, "quotas": [{"entity": {"user": "alice", "client-id": null},
     "values": {"producer_byte_rate": 1000.0}}, ...], "crc32c": N}

null is the default entity. A rate is measured over quota.window.num windows of quota.window.size.seconds. When it is
above its bound, the client waits until it is not: (rate - bound) / bound * measured time. A response leaves at once,
and the connection is muted for that time (KIP-219).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from klog.clock import Clock
from klog.disk import Files, RealFiles
from klog.network.rates import Rate
from klog.protocol import ApiKey
from klog.security.addresses import comparable_host
from klog.security.quota_entities import (
    CONNECTION_RATE,
    IP,
    Applied,
    Entity,
    Kind,
    applied,
    check_value,
    entity_of,
)
from klog.security.refusals import ItemRefused
from klog.security.state_file import Malformed, StateFile
from klog.security.token_bucket import TokenBucket

if TYPE_CHECKING:
    from klog.security.config import SecurityConfig
    from klog.security.context import Context

FILE = "klog-quotas.json"
_RATES_MAX = 1000  # before idle ones are searched for
_APPLIED_MAX = 10_000
THROTTLE_MS_MAX = 2**31 - 1
Quotas = dict[Entity, dict[str, float]]


class ClientQuotas:
    """Quotas, what clients have used of them, and the requests that read and change them. Any thread; guarded by
    `_lock`: the rates, buckets and `_applied`. Changes are made under `_change`.

    directory: the first log.dir. Raises CorruptCheckpoint, NewerFormat, PermissionError for its file.
    """

    def __init__(self, directory: str, config: SecurityConfig, clock: Clock, files: Files | None = None) -> None:
        self._config = config
        self._clock = clock
        self._change = threading.Lock()
        self._lock = threading.Lock()
        self._file = StateFile(directory, FILE, files or RealFiles())
        nothing: Quotas = {}
        self._quotas = self._file.load(_decoded, nothing)
        self._kinds = _kinds_of(self._quotas)
        self._applied: dict[tuple[str, str, str], Applied | None] = {}
        self._rates: dict[tuple[str, ...], Rate] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._search_at = _RATES_MAX

    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        """All quotas by entity."""
        return dict(self._quotas)

    def bound(self, user: str, client_id: str, kind: Kind) -> float | None:
        """The quota of a client, None without one. user: the name in the principal, without "User:"."""
        if kind not in self._kinds:
            return None
        with self._lock:
            found = self._applied_locked(user, client_id, kind)
        return None if found is None else found.bound

    def throttle_ms(self, user: str, client_id: str, kind: Kind, amount: float) -> int:
        """Count what a client has used, and return how long it waits; 0 without a quota or within it.

        amount: bytes; for request_percentage seconds of a thread's time; for controller_mutation_rate the number of
        partitions created or deleted, also when the quota is exhausted (see mutation_throttle_ms).
        """
        if kind not in self._kinds:
            return 0
        if kind == "controller_mutation_rate":
            return self.mutation_throttle_ms(user, client_id, amount, strict=False)
        now = self._clock.monotonic()
        with self._lock:
            found = self._applied_locked(user, client_id, kind)
            if found is None:
                return 0
            rate = self._rate_locked((kind, *found.shared_by), found.bound, now)
            if kind == "request_percentage":
                rate.record(now, amount * 100)
                return _milliseconds(rate.excess_seconds(now))
            rate.record(now, amount)
            return _milliseconds(rate.throttle_seconds(now))

    def unrecord(self, user: str, client_id: str, kind: Kind, amount: float) -> None:
        """Take back what throttle_ms() has counted: of a Fetch that waits, and returns nothing."""
        if kind not in self._kinds:
            return
        now = self._clock.monotonic()
        with self._lock:
            found = self._applied_locked(user, client_id, kind)
            if found is not None:
                self._rate_locked((kind, *found.shared_by), found.bound, now).record(now, -amount)

    def fetch_bytes_max(self, user: str, client_id: str) -> int | None:
        """The most that one Fetch may return: more would always be throttled. None without a quota. Kafka:
        getMaxValueInQuotaWindow."""
        bound = self.bound(user, client_id, "consumer_byte_rate")
        seconds = (self._config.quota_window_num - 1) * self._config.quota_window_size_seconds
        return None if bound is None else int(bound * seconds)

    def mutation_throttle_ms(self, user: str, client_id: str, mutations: float, *, strict: bool) -> int:
        """Count mutations of topics, and return how long the client waits.

        strict: when the quota is exhausted already, the mutations are not counted, and the request is refused with
        THROTTLING_QUOTA_EXCEEDED (CreateTopics from version 6 on, DeleteTopics 5, CreatePartitions 3). Otherwise they
        are counted, and the response makes the client wait.
        """
        if "controller_mutation_rate" not in self._kinds:
            return 0
        now = self._clock.monotonic()
        with self._lock:
            found = self._applied_locked(user, client_id, "controller_mutation_rate")
            if found is None:
                return 0
            bucket = self._bucket_locked(found, now)
            if strict:
                wait = bucket.wait_seconds(now)
                if not wait:
                    bucket.take(now, mutations)
                return _milliseconds(wait)
            bucket.take(now, mutations)
            return _milliseconds(bucket.wait_seconds(now))

    def connection_throttle_ms(self, address: str) -> int:
        """Count a new connection of an address. Returns after how many ms to close it, and then does not count it; 0:
        it is accepted."""
        if CONNECTION_RATE not in self._kinds:
            return 0
        address = comparable_host(address)
        quotas = self._quotas
        found = quotas.get(((IP, address),)) or quotas.get(((IP, None),))
        if found is None:
            return 0
        now = self._clock.monotonic()
        with self._lock:
            rate = self._rate_locked((CONNECTION_RATE, address), found[CONNECTION_RATE], now)
            rate.record(now)
            delay = _milliseconds(rate.excess_seconds(now))
            if delay:
                rate.record(now, -1)
            return delay

    def change(self, changes: Mapping[Entity, Mapping[str, float | None]]) -> None:
        """Set quotas by entity and key, or remove them (None), durably; all or none. Raises OSError."""
        with self._change:
            changed: Quotas = {entity: dict(values) for entity, values in self._quotas.items()}
            for entity, values in changes.items():
                merged = {**changed.get(entity, {}), **values}
                left = {key: value for key, value in merged.items() if value is not None}
                if left:
                    changed[entity] = left
                else:
                    changed.pop(entity, None)
            if changed == self._quotas:
                return
            self._file.save({"quotas": _encoded(changed)})
            with self._lock:
                self._quotas, self._kinds = changed, _kinds_of(changed)
                self._applied.clear()

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """DescribeClientQuotas and AlterClientQuotas. The second one waits for the disk."""
        return {ApiKey.DESCRIBE_CLIENT_QUOTAS: self._describe, ApiKey.ALTER_CLIENT_QUOTAS: self._alter}

    # Their module is loaded by the first request: few brokers get one.

    def _describe(self, context: Context, request: Any) -> Any:
        from klog.security import quota_requests

        return quota_requests.describe(self, context, request)

    def _alter(self, context: Context, request: Any) -> Any:
        from klog.security import quota_requests

        return quota_requests.alter(self, context, request)

    def _applied_locked(self, user: str, client_id: str, kind: str) -> Applied | None:
        key = user, client_id, kind
        if key not in self._applied:
            if len(self._applied) >= _APPLIED_MAX:  # a client can make up ids
                self._applied.clear()
            self._applied[key] = applied(self._quotas, kind, user, client_id)
        return self._applied[key]

    def _rate_locked(self, key: tuple[str, ...], bound: float, now: float) -> Rate:
        rate = self._rates.get(key)
        if rate is None:
            self._forget_idle_locked(now)
            config = self._config
            rate = self._rates[key] = Rate(bound, config.quota_window_num, config.quota_window_size_seconds)
        rate.bound = bound  # it may have changed
        return rate

    def _bucket_locked(self, found: Applied, now: float) -> TokenBucket:
        bucket = self._buckets.get(found.shared_by)
        if bucket is None:
            self._forget_idle_locked(now)
            config = self._config
            seconds = config.controller_quota_window_num * config.controller_quota_window_size_seconds
            bucket = self._buckets[found.shared_by] = TokenBucket(found.bound, seconds, now)
        bucket.bound = found.bound
        return bucket

    def _forget_idle_locked(self, now: float) -> None:
        """Remove what is as if it were new, when there is twice as much as the last time: a client can make up ids."""
        if len(self._rates) + len(self._buckets) < self._search_at:
            return
        self._rates = {key: each for key, each in self._rates.items() if not each.is_new(now)}
        self._buckets = {key: each for key, each in self._buckets.items() if not each.is_full(now)}
        self._search_at = max(_RATES_MAX, 2 * (len(self._rates) + len(self._buckets)))

    def __repr__(self) -> str:
        return f"ClientQuotas({self._file.path!r}, {len(self._quotas)} entities)"


def _milliseconds(seconds: float) -> int:
    """Rounded as Java's Math.round."""
    return int(min(seconds * 1000 + 0.5, THROTTLE_MS_MAX))


def _kinds_of(quotas: Quotas) -> frozenset[str]:
    """The kinds of which there is any quota: others cost nothing."""
    return frozenset(key for values in quotas.values() for key in values)


def _encoded(quotas: Quotas) -> list[dict[str, Any]]:
    ordered = sorted(quotas.items(), key=lambda item: [(kind, name or "", name is None) for kind, name in item[0]])
    return [{"entity": dict(entity), "values": dict(sorted(values.items()))} for entity, values in ordered]


def _decoded(document: Mapping[str, Any]) -> Quotas:
    quotas: Quotas = {}
    for number, each in enumerate(document["quotas"]):
        where = f"quotas[{number}]"
        if not all(name is None or isinstance(name, str) for name in each["entity"].values()):
            raise Malformed(f"{where}: entity")
        if not each["values"] or not all(type(value) in (int, float) for value in each["values"].values()):
            raise Malformed(f"{where}: values")
        try:
            entity = entity_of(each["entity"])
            for key, value in each["values"].items():
                check_value(entity, key, value)
        except ItemRefused as error:
            raise Malformed(f"{where}: {error.reason[:200]}") from None
        if entity in quotas:
            raise Malformed(f"{where}: a second entry of its entity")
        quotas[entity] = {key: float(value) for key, value in each["values"].items()}
    return quotas
