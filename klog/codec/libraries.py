"""The codec libraries, each imported when it is first used: a task of Spark uses one or two of them, or none.

Programs that write, or that have a manager, load all of them when they open; a broker does so shortly after its start.
Later they may be out of descriptors, or no longer see the files of Python's packages.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cramjam
    import lz4.block as lz4_block
    import lz4.frame as lz4_frame
    import zstandard

__all__ = ["cramjam", "lz4_block", "lz4_frame", "zstandard"]


def load() -> None:
    """Import those that are not yet imported."""
    for name in __all__:
        getattr(sys.modules[__name__], name)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = importlib.import_module(name.replace("_", "."))
    return found
