from collections.abc import Iterable, Sequence

from klog.disk._io import AlignedBuffer, LogFile

def merged(requests: Sequence[tuple[int, int]], gap: int = 16384) -> list[list[tuple[int, int]]]: ...
def read_parts(
    file: LogFile, requests: Iterable[tuple[int, int]], gap: int = 16384
) -> list[AlignedBuffer | OSError]: ...
