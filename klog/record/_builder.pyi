from typing import Never, final

from typing_extensions import Buffer

from klog.record._table import BatchTable
from klog.record.inputs import Headers, Records
from klog.record.timestamps import TimestampType

@final
class RecordInput: ...

@final
class BatchGroup(BatchTable):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def __len__(self) -> int: ...
    def assign(self, first_offset: int, leader_epoch: int) -> None: ...

def join_groups(groups: list[BatchGroup]) -> BatchGroup: ...

@final
class Encoder:
    def __init__(
        self,
        records: Records,
        *,
        compression: str | tuple[str, int] | None = None,
        batch_bytes_max: int,
        message_bytes_max: int,
        timestamp_default: int,
        timestamp_min: int,
        timestamp_max: int,
        log_append_time: int = -1,
        key_required: bool = False,
    ) -> None: ...
    def next_group(self, bytes_max: int) -> BatchGroup | None: ...

@final
class BatchBuilder:
    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: str | tuple[str, int] | None = None,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
        timestamp_type: TimestampType = ...,
        log_append_time: int = -1,
        base_timestamp: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None: ...
    def extend(self, records: Records) -> None: ...
    def build(self) -> BatchGroup: ...

def encode(
    records: Records,
    *,
    base_offset: int = 0,
    compression: str | tuple[str, int] | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: TimestampType = ...,
    log_append_time: int = -1,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    keep_offsets: bool = False,
) -> bytes: ...
