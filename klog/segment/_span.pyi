from klog.disk._io import LogFile
from klog.segment._index import IndexPair

def span(file: LogFile, position: int, end: int, bytes_max: int, index: IndexPair | None = None) -> tuple[int, int]: ...
