from typing import final

from klog.config import LogConfig

@final
class AppendPolicy:
    def __init__(self, config: LogConfig) -> None: ...
    @property
    def stamps(self) -> bool: ...
