from collections.abc import Callable, Iterable
from os import PathLike

from typing_extensions import Buffer

from klog.errors import CorruptBatch
from klog.record.payloads import Payloads

def note_latest(
    offsets: dict[bytes, int],
    buffer: Buffer,
    *,
    timestamp_max: int = ...,
    start: int = 0,
    stop: int = ...,
    aborted: Iterable[tuple[int, int, int]] = (),
    path: str | PathLike[str] | None = None,
    file_position: int = 0,
    payloads: Payloads | None = None,
    on_damage: Callable[[CorruptBatch, int], object] | None = None,
) -> None: ...
