"""GroupConfigs: the configurations that consumer groups have of their own. Kafka: GroupConfigManager, GroupConfig.

DynamicConfigs keeps them, and the group coordinator gets them. A group need not exist to have one, and keeps it when it
is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.broker.admin.config_entries import Entry, Source, Synonym
from klog.broker.admin.dynamic_configs import changed
from klog.coordinator.groups.consumer_config import GROUP_DOCS, GROUP_KEYS, ConsumerGroupConfig
from klog.errors import InvalidConfig
from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from klog.broker.admin.dynamic_configs import DynamicConfigs

_log = logger_of("broker")
_INT = 3


class GroupConfigs:
    """Any thread. config: of groups that have none of their own. configure: called with a group and its configuration,
    None if it has none any more."""

    def __init__(
        self,
        dynamic: DynamicConfigs,
        config: ConsumerGroupConfig,
        configure: Callable[[str, ConsumerGroupConfig | None], object],
    ) -> None:
        self._dynamic = dynamic
        self._config = config
        self._configure = configure

    def apply(self) -> None:
        """Hand out what the file has. A group whose values the broker's bounds no longer allow is logged and left
        out."""
        for name, own in self._dynamic.groups.items():
            try:
                self._configure(name, self._config.of_group(own))
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
        for key in sorted(GROUP_KEYS):
            default = str(getattr(self._config, GROUP_KEYS[key]))
            synonyms = [Synonym(key, own[key], Source.GROUP)] if key in own else [Synonym(key, default, Source.DEFAULT)]
            _, value, source = synonyms[0]
            yield Entry(key, value, source, tuple(synonyms), _INT, documentation=GROUP_DOCS[key])

    def alter(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Set values; None removes one. Raises InvalidConfig, OSError; then nothing has changed."""
        own = changed(self.of(name), changes)
        config = self._config.of_group(own)
        if not validate_only:
            self._dynamic.alter_group(name, changes)
            self._configure(name, config if own else None)
