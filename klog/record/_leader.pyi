from collections.abc import Mapping
from typing import Literal, Never, final

from typing_extensions import Buffer

from klog.config import LogConfig
from klog.record._table import BatchTable

@final
class Terms: ...

@final
class ValidatedBatch(BatchTable):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    def __len__(self) -> int: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def compression(self) -> str: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def shallow_offset_of_max_timestamp(self) -> int: ...
    @property
    def log_append_time(self) -> int: ...
    @property
    def message_size_maybe_changed(self) -> bool: ...
    @property
    def conversion_count(self) -> int: ...
    @property
    def temporary_memory_bytes(self) -> int: ...

def validate_append(
    buffer: Buffer,
    config: LogConfig | Mapping[str, object],
    *,
    offset: int,
    now: int,
    origin: Literal["client", "coordinator"] = "client",
    leader_epoch: int = -1,
    takes_zstd: bool = True,
) -> ValidatedBatch: ...
def append_as_leader(
    buffer: Buffer,
    config: LogConfig | Mapping[str, object],
    *,
    offset: int,
    now: int,
    origin: str,
    leader_epoch: int,
    size_max: int,
) -> ValidatedBatch | None: ...
