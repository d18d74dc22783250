from typing import Never, final

from typing_extensions import Buffer

__pyx_capi__: dict[str, object]

@final
class Result(Buffer):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...

def memory_for(size: int, /) -> Result: ...
def finished(result: Result, size: int, /) -> bytes | memoryview: ...
