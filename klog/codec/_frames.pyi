from collections.abc import Callable
from typing import TypeVar

from typing_extensions import Buffer

_Source = TypeVar("_Source", bound=Buffer)

def fill(function: Callable[[_Source, memoryview], int], source: _Source, space: int, /) -> bytes: ...
def lz4_frame(payload: Buffer, /) -> tuple[int, int, int, int]: ...
def zstd_frame(payload: Buffer, at: int, /) -> tuple[int, int, int, bool] | None: ...
