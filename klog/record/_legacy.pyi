from typing import Any, final

__pyx_capi__: dict[str, Any]

@final
class LegacyBatch:
    @property
    def payload(self) -> bytes: ...
