from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class SegmentState:
    base_offset: int
    next_offset: int
    size: int
    _active: Any
