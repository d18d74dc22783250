from collections.abc import Iterator
from typing import Any

from typing_extensions import Buffer

def murmur2(data: Buffer) -> int: ...
def split(iterator: Iterator[Any], partitions: int, sticky: int, limit: int) -> tuple[list[list[Any]], int]: ...
