"""Configurations of a broker's parts: frozen classes whose fields have Kafka's property names, and their bounds.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class GroupConfig(Keyed):
        max_size: int = key("group.max.size", INT_MAX, 1, doc="largest number of members of a group")

A field has the type of its default: int, bool, str, or a tuple of str for a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from klog import arguments
from klog.arguments import INT_MAX
from klog.config.table import Key
from klog.errors import InvalidConfig
from klog.values import field, fields_of

_FLAGS = {"true": True, "false": False}


def key(name: str | None, default: Any, low: int | None = None, high: int = INT_MAX, *, doc: str = "") -> Any:
    """A field. name: the property; None for a setting that has none. low, high: the bounds of a number. doc: what it
    means; left out if BROKER_KEYS has the property with the same default."""
    return field(default=default, metadata={"name": name, "low": low, "high": high, "doc": doc})


class Keyed:
    """What such classes have in common."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check numbers and flags. Raises ValueError or TypeError that name the field and the property."""
        for each in fields_of(type(self)):
            if "name" not in each.metadata:
                continue
            name, value = each.metadata["name"], getattr(self, each.name)
            if isinstance(each.default, bool):
                value = arguments.flag(each.name, value)
            elif isinstance(each.default, int):
                low, high, hint = each.metadata["low"], each.metadata["high"], f" ({name})" if name else ""
                value = arguments.whole(each.name, value, arguments.LONG_MIN if low is None else low, high, hint=hint)
            object.__setattr__(self, each.name, value)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From properties by Kafka's names, as in a server.properties; other names are left out. Raises
        InvalidConfig."""
        found = {
            each.name: parsed(each.metadata["name"], values[each.metadata["name"]], each.default)
            for each in fields_of(cls)
            if each.metadata.get("name") in values
        }
        try:
            return cls(**found)
        except (ValueError, TypeError) as error:
            raise InvalidConfig(str(error)) from None

    @classmethod
    def names(cls) -> frozenset[str]:
        """The properties that this takes."""
        return frozenset(each.metadata["name"] for each in fields_of(cls) if each.metadata.get("name"))

    @classmethod
    def documented(cls) -> Iterator[Key]:
        """The properties that have a doc here."""
        for each in fields_of(cls):
            if each.metadata.get("doc"):
                name, low, high, doc = (each.metadata[part] for part in ("name", "low", "high", "doc"))
                kind = "long" if high > INT_MAX else type_of(each.default)
                yield Key(name, kind, each.default, doc, low, high)

    def by_name(self) -> dict[str, Any]:
        """The values by Kafka's names."""
        return {
            each.metadata["name"]: getattr(self, each.name)
            for each in fields_of(type(self))
            if each.metadata.get("name")
        }


def type_of(default: object) -> str:
    """The type of a property with this default, as in klog.config's tables."""
    if isinstance(default, bool):
        return "bool"
    return "int" if isinstance(default, int) else "list" if isinstance(default, tuple) else "string"


def parsed(name: str, value: Any, default: Any) -> Any:
    """A value as the type of its default."""
    if isinstance(default, bool):
        found = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
        if found is None:
            raise InvalidConfig(f"{name}={value!r}: true or false expected")
        return found
    if isinstance(default, int):
        try:
            return value if isinstance(value, bool) else int(value)
        except (TypeError, ValueError):
            raise InvalidConfig(f"{name}={value!r}: a whole number expected") from None
    if isinstance(default, tuple):
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(part.strip() for part in parts if part.strip())
    return value
