from typing_extensions import disjoint_base

from klog.durations import Durations
from klog.log.options import Options

@disjoint_base
class Counters:
    bytes_in: int
    messages_in: int
    replicated_bytes_in: int
    bytes_out: int
    appends: int
    failed_appends: int
    fetches: int
    failed_fetches: int
    append_times: Durations
    fetch_times: Durations
    def begin_append(self, options: Options) -> int: ...
    def end_append(self, began: int, options: Options) -> None: ...
    def begin_fetch(self, options: Options) -> int: ...
    def end_fetch(self, began: int, size: int, options: Options) -> None: ...
