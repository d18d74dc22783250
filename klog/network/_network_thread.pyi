from collections.abc import Callable
from typing import Any, final

from klog.clock import Clock
from klog.disk import SendCounts
from klog.network._mailbox import Mailbox
from klog.network._pool import MemoryPool

@final
class NetworkThread:
    @property
    def number(self) -> int: ...
    @property
    def mailbox(self) -> Mailbox: ...
    @property
    def pool(self) -> MemoryPool: ...
    @property
    def config(self) -> Any: ...
    @property
    def handler(self) -> Callable[..., object]: ...
    @property
    def is_cheap(self) -> Callable[..., object] | None: ...
    @property
    def queue(self) -> Any: ...
    @property
    def notices(self) -> Any: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def closed(self) -> Callable[..., object]: ...
    @property
    def sends(self) -> SendCounts: ...
    def __new__(
        cls,
        number: int,
        config: Any,
        pool: MemoryPool,
        handler: Callable[..., object],
        queue: Any,
        notices: Any,
        clock: Clock,
        closed: Callable[..., object],
    ) -> NetworkThread: ...
    def counts(self) -> dict[str, int]: ...
