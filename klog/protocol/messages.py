"""The messages of Kafka's wire protocol and its internal topics: Metadata.Request, OffsetCommitValue and others.

The classes are made from the schemas in klog/protocol/schemas when they are first used. messages.pyi has their fields.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.classes import message, names


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return names()
    try:
        made = globals()[name] = message(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return made


def __dir__() -> list[str]:
    return names()
