"""TransactionConfig: the settings of the coordinator, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from klog.arguments import whole
from klog.errors import InvalidConfig
from klog.values import dataclass, fields


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """All in ms. transaction_max_timeout_ms: the longest transaction that a producer may ask for.
    transactional_id_expiration_ms: a transactional id that was unused for so long is forgotten. The others are the
    periods of the two checks, and the pause before a marker that could not be written is tried again (klog's)."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    klog_transaction_marker_retry_ms: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            whole(field.name, getattr(self, field.name), 1)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From properties by Kafka's names, as in a server.properties; other names are left out. Raises
        InvalidConfig."""
        found: dict[str, int] = {}
        for field in fields(cls):
            name = field.name.replace("_", ".")
            if values.get(name) is not None:
                try:
                    found[field.name] = int(values[name])
                except (TypeError, ValueError):
                    raise InvalidConfig(f"{name}={values[name]!r}: a whole number expected") from None
        try:
            return cls(**found)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
