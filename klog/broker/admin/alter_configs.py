"""IncrementalAlterConfigs and AlterConfigs. A resource is altered as a whole or not at all.

Kafka: ConfigAdminManager, ConfigurationControlManager. An unknown property of a broker is refused here, while Kafka
keeps it for plug-ins.
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from klog.broker.admin import loggers
from klog.broker.admin.config_entries import broker_key, is_dynamic
from klog.broker.admin.failures import Refused, outcome, repeated
from klog.broker.admin.resources import ResourceType, check_allowed, check_broker, check_group, resource_type
from klog.broker.admin.topic_rules import check_config
from klog.config import TOPIC_KEYS, Key
from klog.config.nearest import nearest
from klog.config.values import format_value
from klog.errors import InvalidConfig
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.manager.topics import check_topic_name
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.config import tls_property

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.broker.admin.dynamic_configs import DynamicConfigs
    from klog.broker.admin.group_configs import GroupConfigs
    from klog.broker.catalog import TopicCatalogView
    from klog.manager import LogManager
    from klog.protocol import Message
    from klog.security import Context


_VALUE_BYTES_MAX = 2**15 - 1  # a string of the protocol


class Operation(IntEnum):
    """What to do with a value. Kafka: AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Change = tuple[str, Operation, str | None]


class AlterConfigs:
    """Any thread."""

    def __init__(
        self,
        logs: LogManager,
        topics: TopicCatalogView,
        dynamic: DynamicConfigs,
        groups: GroupConfigs,
        brokers: tuple[int, ...],
    ) -> None:
        self._logs = logs
        self._topics = topics
        self._dynamic = dynamic
        self._groups = groups
        self._brokers = brokers

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
        }

    def incremental_alter_configs(self, context: Context, request: Any) -> Message:
        """Change single values. May block on disks."""
        Response = messages.IncrementalAlterConfigs.Response
        return Response(
            responses=[
                Response.Resource(resource_type=kind, resource_name=name, error_code=code, error_message=text)
                for kind, name, code, text in self._alter_all(context, request, self._increments)
            ]
        )

    def alter_configs(self, context: Context, request: Any) -> Message:
        """Replace all values of resources: those that are not given are removed. May block on disks."""
        Response = messages.AlterConfigs.Response
        return Response(
            responses=[
                Response.Resource(resource_type=kind, resource_name=name, error_code=code, error_message=text)
                for kind, name, code, text in self._alter_all(context, request, self._replacements)
            ]
        )

    def _alter_all(
        self, context: Context, request: Any, changes_of: Callable[[ResourceType, Any], list[Change]]
    ) -> list[tuple[int, str, ErrorCode, str | None]]:
        asked = [f"{resource.resource_type} {resource.resource_name}" for resource in request.resources]
        twice = repeated(asked)
        found = []
        for resource, key in zip(request.resources, asked, strict=True):
            work = partial(
                self._alter, context, resource, changes_of, is_twice=key in twice, validate_only=request.validate_only
            )
            found.append((resource.resource_type, resource.resource_name, *outcome(work, "AlterConfigs")))
        return found

    def _alter(
        self,
        context: Context,
        resource: Any,
        changes_of: Callable[[ResourceType, Any], list[Change]],
        *,
        is_twice: bool,
        validate_only: bool,
    ) -> None:
        kind, name = resource_type(resource.resource_type), resource.resource_name
        if is_twice:
            raise Refused(ErrorCode.INVALID_REQUEST, "the resource is in the request twice")
        twice = repeated([config.name for config in resource.configs])
        if twice:
            raise Refused(ErrorCode.INVALID_REQUEST, f"configurations that are there twice: {', '.join(sorted(twice))}")
        check_allowed(context, "ALTER_CONFIGS", kind, name)
        changes = changes_of(kind, resource)
        without = [name for name, operation, value in changes if value is None and operation is not Operation.DELETE]
        if without:
            raise Refused(ErrorCode.INVALID_REQUEST, f"configurations without a value: {', '.join(without)}")
        if kind is ResourceType.TOPIC:
            self._alter_topic(name, changes, validate_only=validate_only)
        elif kind is ResourceType.BROKER:
            self._alter_broker(name, changes, validate_only=validate_only)
        elif kind is ResourceType.GROUP:
            check_group(name)
            self._groups.alter(name, _resolved(changes, self._groups.of(name), _no_list), validate_only=validate_only)
        else:
            check_broker(name, self._brokers, may_be_all=False)
            if any(operation in (Operation.APPEND, Operation.SUBTRACT) for _, operation, _ in changes):
                raise Refused(ErrorCode.INVALID_REQUEST, "a level can be set and deleted")
            loggers.alter({logger: level for logger, _, level in changes}, validate_only=validate_only)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def _increments(self, kind: ResourceType, resource: Any) -> list[Change]:
        changes = []
        for config in resource.configs:
            try:
                operation = Operation(config.config_operation)
            except ValueError:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"{config.name}: there is no operation {config.config_operation}"
                ) from None
            changes.append((config.name, operation, None if operation is Operation.DELETE else config.value))
        return changes

    def _replacements(self, kind: ResourceType, resource: Any) -> list[Change]:
        """What AlterConfigs means: set what it has, delete all else."""
        if kind is ResourceType.BROKER_LOGGER:
            raise Refused(ErrorCode.INVALID_REQUEST, "levels of loggers need IncrementalAlterConfigs")
        if kind is ResourceType.TOPIC:
            info = self._topics.get(resource.resource_name)
            present: Mapping[str, Any] = info.config if info is not None else {}
        elif kind is ResourceType.GROUP:
            present = self._groups.of(resource.resource_name)
        else:
            present = self._dynamic.broker if resource.resource_name else self._dynamic.default
        changes: list[Change] = [(config.name, Operation.SET, config.value) for config in resource.configs]
        given = {config.name for config in resource.configs}
        return changes + [(name, Operation.DELETE, None) for name in present if name not in given]

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _alter_topic(self, name: str, changes: list[Change], *, validate_only: bool) -> None:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "the name of a topic expected")
        info = self._topics.get(check_topic_name(name))
        if info is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        present = {key: format_value(value) for key, value in info.config.items()}
        values = _resolved(changes, present, TOPIC_KEYS.get)
        after = {**present, **values}
        after = {key: value for key, value in after.items() if value is not None}
        check_config(self._logs.config, after, info.config)
        if name in INTERNAL_TOPICS:
            self._check_internal(name, after)
        # A key that no topic has any more can be deleted: a later version may have set it.
        known = {key: value for key, value in values.items() if key in TOPIC_KEYS}
        if known and not validate_only:
            self._topics.alter(name, known)

    def _check_internal(self, name: str, own: Mapping[str, Any]) -> None:
        """Raise Refused if an internal topic with these values of its own would lose what its coordinator needs."""
        needed, config = self._topics.internal_settings(name)[1], self._logs.config.topic_config(own)
        wrong = [key for key in ("retention.ms", "retention.bytes") if config[key] != needed.get(key, config[key])]
        if ("compact" in config["cleanup.policy"]) != ("compact" in needed["cleanup.policy"]):
            wrong = ["cleanup.policy"]
        if wrong:
            must = f"its {wrong[0]} must be {needed[wrong[0]]}"
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is internal: {must}")

    # ---- broker ------------------------------------------------------------------------------------------------------

    def _alter_broker(self, name: str, changes: list[Change], *, validate_only: bool) -> None:
        check_broker(name, self._brokers, may_be_all=True)
        present = self._dynamic.broker if name else self._dynamic.default
        for key, operation, _ in changes:
            of_listener = tls_property(key) is not None
            if broker_key(key) is None and not (of_listener or (operation is Operation.DELETE and key in present)):
                near = nearest(key, self._logs.config)
                hint = f"; did you mean {near}?" if near else ""
                raise Refused(ErrorCode.INVALID_CONFIG, f"unknown configuration {key!r}{hint}")
            if not is_dynamic(key):
                hint = f"; listener.name.<listener>.{key} can" if is_dynamic(f"listener.name.any.{key}") else ""
                raise Refused(ErrorCode.INVALID_REQUEST, f"{key} cannot change while the broker runs{hint}")
            if of_listener and not name:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{key} can be set for one broker only, not for all")
        values = _resolved(changes, present, broker_key)
        try:
            if validate_only:
                self._dynamic.check(per_broker=bool(name), changes=values)
            else:
                self._dynamic.alter(per_broker=bool(name), changes=values)
        except InvalidConfig as error:  # Kafka's code for a value of a broker, unlike for one of a topic
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


def _no_list(_name: str) -> Key | None:
    """No value of a group is a list."""
    return None


def _resolved(
    changes: list[Change], present: Mapping[str, str], key_of: Callable[[str], Key | None]
) -> dict[str, str | None]:
    """The value of each key that changes; None for one that is removed. Raises Refused, also for a list that is too
    long for a response."""
    values: dict[str, str | None] = {}
    for name, operation, value in changes:
        if operation in (Operation.SET, Operation.DELETE):
            values[name] = value
            continue
        key = key_of(name)
        if key is None or key.type != "list":
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list: its value can only be set or deleted")
        items = present[name].split(",") if name in present else list(key.default or ())
        items = [item for item in items if item]
        given = (value or "").split(",")
        if operation is Operation.APPEND:
            items += [item for item in dict.fromkeys(given) if item not in items]
        else:
            items = [item for item in items if item not in given]
        joined = values[name] = ",".join(items)
        if len(joined.encode()) > _VALUE_BYTES_MAX:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: at most {_VALUE_BYTES_MAX} bytes expected")
    return values
