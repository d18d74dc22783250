from collections.abc import Buffer, Iterator
from typing import Any

def murmur2(data: Buffer) -> int: ...
def split(
    iterator: Iterator[Any], partitions: int, sticky: int, limit: int
) -> tuple[list[list[Any]], int]: ...
