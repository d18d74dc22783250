from collections.abc import Iterator
from typing import Any

from typing_extensions import Buffer

from klog.record._rows import Rows

def murmur2(data: Buffer) -> int: ...
def split_rows(rows: Rows, start: int, limit: int, partitions: int, sticky: int) -> list[Rows | None]: ...
def split(iterator: Iterator[Any], partitions: int, sticky: int, limit: int) -> tuple[list[list[Any]], int]: ...
