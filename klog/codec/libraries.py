"""The codec libraries, each imported when it is first used: most processes use one or two of them, or none."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cramjam
    import lz4.block as lz4_block
    import lz4.frame as lz4_frame
    import zstandard

__all__ = ["cramjam", "lz4_block", "lz4_frame", "zstandard"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = importlib.import_module(name.replace("_", "."))
    return found
