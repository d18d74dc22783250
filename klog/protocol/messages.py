"""The messages of Kafka's wire protocol: Metadata.Request, Metadata.Response, Metadata.Response.Topic and others.

The classes are made from the schemas in klog/protocol/schemas when they are first used. messages.pyi has their fields.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.classes import NAMES, message

__all__ = NAMES


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = message(name)
    return made


def __dir__() -> list[str]:
    return NAMES
