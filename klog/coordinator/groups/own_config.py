"""What the configurations of consumer groups and share groups share: bounds of their values, and the values that one
group has of its own. Kafka: GroupConfig."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from klog.config.keyed import Keyed, parsed
from klog.errors import InvalidConfig
from klog.values import NamedTuple, replace

_Config = TypeVar("_Config", bound=Keyed)


class OwnKey(NamedTuple):
    """A property that a group may have of its own: the field whose place it takes, and what it sets."""

    field: str
    doc: str


def check_bounds(config: Any, prefix: str, fields: Iterable[str]) -> None:
    """Raise ValueError if a field is not from that of the same name with min_ to that with max_, or if a session is not
    longer than a heartbeat: it would end between two. prefix: of the properties, such as group.share."""
    for name in fields:
        low, value, high = (getattr(config, f"{bound}{name}") for bound in ("min_", "", "max_"))
        if not low <= value <= high:
            raise ValueError(
                f"{name}={value} ({prefix}.{name.replace('_', '.')}): from {low} to {high}, the bounds that "
                f"{prefix}.min and .max of it set"
            )
    if config.session_timeout_ms <= config.heartbeat_interval_ms:
        raise ValueError(
            f"session_timeout_ms={config.session_timeout_ms} ({prefix}.session.timeout.ms): more than "
            f"heartbeat_interval_ms={config.heartbeat_interval_ms} ({prefix}.heartbeat.interval.ms) expected"
        )


def with_own(config: _Config, keys: Mapping[str, OwnKey], own: Mapping[str, str]) -> _Config:
    """The configuration of a group. keys: by the names of the group's properties; own: its values as texts.
    Raises InvalidConfig. Kafka: GroupConfig.validate."""
    fields: dict[str, Any] = {}
    for name, text in own.items():
        if name not in keys:
            raise InvalidConfig(f"unknown group configuration {name!r}: {' or '.join(keys)} expected")
        field = keys[name].field
        fields[field] = parsed(name, text, getattr(config, field))
    try:
        return replace(config, **fields)  # type: ignore[type-var]
    except (ValueError, TypeError) as error:
        raise InvalidConfig(str(error)) from None
