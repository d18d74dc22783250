"""with_own: a configuration of groups with the values that one of them has of its own. Kafka: GroupConfig.fromProps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from klog.config.keyed import Keyed, parsed
from klog.errors import InvalidConfig
from klog.values import replace

_Config = TypeVar("_Config", bound=Keyed)


def with_own(config: _Config, keys: Mapping[str, str], own: Mapping[str, str]) -> _Config:
    """The configuration of a group. keys: the fields by the names of the group's properties; own: its values as texts.
    Raises InvalidConfig."""
    fields: dict[str, Any] = {}
    for name, text in own.items():
        if name not in keys:
            raise InvalidConfig(f"unknown group configuration {name!r}: {' or '.join(keys)} expected")
        fields[keys[name]] = parsed(name, text, getattr(config, keys[name]))
    try:
        return replace(config, **fields)  # type: ignore[type-var]
    except (ValueError, TypeError) as error:
        raise InvalidConfig(str(error)) from None
