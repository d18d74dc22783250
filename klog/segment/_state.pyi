from typing import Any

from typing_extensions import disjoint_base

from klog.disk._handles import Holder

@disjoint_base
class SegmentState(Holder):
    base_offset: int
    next_offset: int
    size: int
    _active: Any
