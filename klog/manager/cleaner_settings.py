"""The cleaner's settings, from the broker-level configuration, and which logs it handles. Kafka: CleanerConfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.errors import InvalidConfig
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.config import ManagerConfig
    from klog.log.log import Log

ENTRY_BYTES = 24  # of the key map, for one key
MAP_BYTES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """threads: 0 if the cleaner is disabled. map_bytes: size of each thread's key map.

    log.cleaner.io.buffer.size is not used: read chunks have their own size and grow with the largest batch.
    """

    threads: int
    map_bytes: int
    load_factor: float
    bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: ManagerConfig) -> CleanerSettings:
        """Raises InvalidConfig if a thread's map would hold fewer than two keys."""
        threads = config.log_cleaner_threads if config.log_cleaner_enable else 0
        size = min(config.log_cleaner_dedupe_buffer_size // max(threads, 1), MAP_BYTES_MAX)
        load = config.log_cleaner_io_buffer_load_factor
        if threads and (size // ENTRY_BYTES) * load <= 1:
            raise InvalidConfig(
                f"log.cleaner.dedupe.buffer.size={config.log_cleaner_dedupe_buffer_size} is {size} bytes for each of "
                f"{threads} threads, which at log.cleaner.io.buffer.load.factor={load} has no space for two keys; "
                f"raise it, or lower log.cleaner.threads"
            )
        return cls(
            threads,
            size,
            load,
            config.log_cleaner_io_max_bytes_per_second,
            max(config.log_cleaner_backoff_ms, 1),
        )


def is_compacted(log: Log) -> bool:
    """True if the cleaner handles this log: its configuration is known and compacts."""
    known: bool = log._core.options.config_known and log.config.compacts
    return known and not (log.closed or log._core.health.deleted or log.offline is not None)
