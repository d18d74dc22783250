"""GroupConfigs: the configurations that groups have of their own. Kafka: GroupConfigManager, GroupConfig.

DynamicConfigs keeps them, and the group coordinator gets them. A group need not exist to have one, and keeps it when it
is deleted. It has the properties of consumer groups and those of share groups, whatever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.admin.config_entries import Entry, Source, Synonym
from klog.broker.admin.dynamic_configs import changed
from klog.errors import InvalidConfig
from klog.logger import logger_of
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from klog.broker.admin.dynamic_configs import DynamicConfigs
    from klog.coordinator.groups.own_config import OwnKey

_log = logger_of("broker")
_BOOLEAN, _STRING, _INT = 1, 2, 3


class OfGroups(NamedTuple):
    """One kind of groups. config: of groups that have none of their own, with a method of_group(own). keys: by the
    names of properties. configure: called with a group and its configuration, None if it has none any more."""

    config: Any
    keys: Mapping[str, OwnKey]
    configure: Callable[[str, Any], object]


class GroupConfigs:
    """Any thread."""

    def __init__(self, dynamic: DynamicConfigs, kinds: Sequence[OfGroups]) -> None:
        self._dynamic = dynamic
        self._kinds = kinds

    def apply(self) -> None:
        """Apply what the file has. A group whose values the broker's bounds no longer allow is logged and left
        out."""
        for name, own in self._dynamic.groups.items():
            try:
                self._configure(name, self._parsed(own))
            except InvalidConfig as error:
                _log.warning("event=config_left_out group=%r reason=%s", name, error)

    def names(self) -> list[str]:
        """The groups that have a configuration of their own."""
        return sorted(self._dynamic.groups)

    def of(self, name: str) -> Mapping[str, str]:
        """A group's own values."""
        return self._dynamic.groups.get(name, {})

    def entries(self, name: str) -> Iterator[Entry]:
        """The configurations of a group, sorted."""
        own = self.of(name)
        kinds = {key: kind for kind in self._kinds for key in kind.keys}
        for key, kind in sorted(kinds.items(), key=lambda each: each[0]):
            found = getattr(kind.config, kind.keys[key].field)
            default = str(found).lower() if isinstance(found, bool) else str(found)
            synonyms = [Synonym(key, own[key], Source.GROUP)] if key in own else [Synonym(key, default, Source.DEFAULT)]
            _, value, source = synonyms[0]
            type_ = _BOOLEAN if isinstance(found, bool) else _INT if isinstance(found, int) else _STRING
            yield Entry(key, value, source, tuple(synonyms), type_, documentation=kind.keys[key].doc)

    def alter(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Set values; None removes one. Raises InvalidConfig, OSError; then nothing has changed."""
        parsed = self._parsed(changed(self.of(name), changes))
        if not validate_only:
            self._dynamic.alter_group(name, changes)
            self._configure(name, parsed)

    def _parsed(self, own: Mapping[str, str]) -> list[Any]:
        """The configuration of a group for each kind; None where it has nothing of its own. Raises InvalidConfig."""
        known = [key for kind in self._kinds for key in kind.keys]
        for key in own:
            if key not in known:
                raise InvalidConfig(f"unknown group configuration {key!r}: one of {', '.join(sorted(known))} expected")
        found = []
        for kind in self._kinds:
            values = {key: value for key, value in own.items() if key in kind.keys}
            found.append(kind.config.of_group(values) if values else None)
        return found

    def _configure(self, name: str, parsed: list[Any]) -> None:
        for kind, config in zip(self._kinds, parsed, strict=True):
            kind.configure(name, config)
