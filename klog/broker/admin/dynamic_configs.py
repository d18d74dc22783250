"""DynamicConfigs: the configurations of the broker and of groups that clients have set, kept in a file.

    klog-broker.json  {"version": 1, "broker": {"<key>": "<value>"}, "default": {...},
                       "groups": {"<group>": {"<key>": "<value>"}}, "crc32c": N}

broker: set for this broker; default: for all brokers. A value of `broker` is stronger. The file is in the first
log.dir; Kafka ignores it. A change of the broker is applied to the LogManager, which checks it, and then written; if
the write fails, it is undone. The certificates of listeners (listener.name.<l>.ssl...) are read before that, and used
after it. Kafka: DynamicBrokerConfig and GroupConfigManager, whose values are in the metadata log.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klog.broker.settings import BROKER_FILE
from klog.disk import Files, RealFiles, read_whole
from klog.errors import CorruptCheckpoint, InvalidConfig
from klog.log.directory import versioned
from klog.logger import logger_of
from klog.security.config import tls_property

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.broker.listeners import Certificates
    from klog.config import ManagerConfig
    from klog.manager import LogManager

VERSION: Final = 1
_STEPS = 32  # doublings of a 32-bit number
_log = logger_of("broker")


class DynamicConfigs:
    """Any thread reads `broker`, `default` and `groups`, which are replaced as a whole. Changes take a lock."""

    def __init__(self, logs: LogManager, files: Files | None = None, certificates: Certificates | None = None) -> None:
        """Read the file; apply() is still to be called. Raises CorruptCheckpoint, NewerFormat, OSError."""
        self._logs = logs
        self._certificates = certificates
        self._files = files or RealFiles()
        self._path = os.path.join(logs.path, BROKER_FILE)
        self._lock = threading.Lock()
        self._listeners: list[Callable[[ManagerConfig], object]] = []
        self.broker: Mapping[str, str]
        self.default: Mapping[str, str]
        self.groups: Mapping[str, Mapping[str, str]]
        self.broker, self.default, self.groups = read(self._path)

    def on_change(self, callback: Callable[[ManagerConfig], object]) -> None:
        """Call back with the configuration of the directory after each change. Before the first request."""
        self._listeners.append(callback)

    def apply(self) -> None:
        """Apply what the file has. A value that this directory does not take is logged and left out.

        Numbers of threads change by a factor of two at most at a time; here they may have to go further.
        """
        self._apply_tls()
        for name, value in _of_engine({**self.default, **self.broker}).items():
            for _ in range(_STEPS):
                try:
                    self._logs.alter_config({name: value})
                    break
                except InvalidConfig as error:
                    nearer = self._towards(name, value)
                    if nearer is None:
                        _log.warning("event=config_left_out key=%s reason=%s", name, error)
                        break
                    self._logs.alter_config({name: nearer})

    def _apply_tls(self) -> None:
        used: dict[str, str] = {}
        for name, value in self.broker.items():
            if tls_property(name) is not None:
                try:
                    self._tls().check({**used, name: value})
                    used[name] = value
                except InvalidConfig as error:
                    _log.warning("event=config_left_out key=%s reason=%s", name, error)
        if used or (self._certificates is not None and self._certificates.dynamic):
            self._tls().change(used, lambda: None)

    def _tls(self) -> Certificates:
        if self._certificates is None:
            raise InvalidConfig("the broker has no listener with TLS")
        return self._certificates

    def _tls_after(self, difference: Mapping[str, Any]) -> dict[str, str]:
        """What is in use with a difference. A value that was left out at the start, as of a listener that the broker
        has no more, stays left out."""
        own = {name: value for name, value in difference.items() if tls_property(name) is not None}
        return changed(self._tls().dynamic, own)

    def _towards(self, name: str, value: str) -> int | None:
        """Half or twice the current number of threads, in the direction of a value; None if that does not help."""
        try:
            now, wanted = self._logs.config[name], int(value)
        except (KeyError, ValueError):
            return None
        if not isinstance(now, int) or now < 1 or wanted < 1 or now // 2 <= wanted <= now * 2:
            return None
        return now * 2 if wanted > now else now // 2

    def check(self, *, per_broker: bool, changes: Mapping[str, str | None]) -> None:
        """Raise InvalidConfig if a change would be refused. None removes a value."""
        current = self._logs.config
        _, _, difference = self._merged(per_broker, changes)
        after = _of_engine(difference)
        current.altered({name: value for name, value in after.items() if value is not None}, current)
        if after != difference:
            self._tls().check(self._tls_after(difference))

    def alter(self, *, per_broker: bool, changes: Mapping[str, str | None]) -> None:
        """Set values; None removes one. Raises InvalidConfig, OSError; then nothing has changed."""
        with self._lock:
            broker, default, difference = self._merged(per_broker, changes)
            after = _of_engine(difference)
            commit = partial(self._commit, broker, default, after)
            if after == difference:
                commit()
            else:
                self._tls().change(self._tls_after(difference), commit)
        for listener in self._listeners:
            listener(self._logs.config)

    def _commit(self, broker: dict[str, str], default: dict[str, str], difference: dict[str, Any]) -> None:
        before = {**self.default, **self.broker}
        self._logs.alter_config(difference)
        try:
            self._write(broker, default, self.groups)
        except BaseException:
            try:
                self._logs.alter_config({name: before.get(name) for name in difference})
            except InvalidConfig as error:  # a way back that is too far in one step, until the next start
                _log.error("event=config_not_undone reason=%s", error)
            raise
        self.broker, self.default = broker, default

    def alter_group(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Set values of a group; None removes one. They are not checked here. Raises OSError; then nothing has
        changed."""
        with self._lock:
            own = changed(self.groups.get(group_id, {}), changes)
            groups = {name: each for name, each in self.groups.items() if name != group_id}
            if own:
                groups[group_id] = own
            self._write(self.broker, self.default, groups)
            self.groups = groups

    def _write(
        self, broker: Mapping[str, str], default: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]
    ) -> None:
        document = {"version": VERSION, "broker": broker, "default": default, "groups": groups}
        self._files.replace(self._path, versioned.encode(document, indent=1))

    def _merged(
        self, per_broker: bool, changes: Mapping[str, str | None]
    ) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
        """Return what broker and default will be, and what that changes of both together: None for a reset."""
        broker = changed(self.broker, changes if per_broker else {})
        default = changed(self.default, {} if per_broker else changes)
        effective = {**default, **broker}
        return broker, default, {name: effective.get(name) for name in changes}


def _of_engine(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the LogManager takes."""
    return {name: value for name, value in values.items() if tls_property(name) is None}


def changed(values: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Values after changes, None for one that is removed."""
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


def read(path: str) -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, str]]]:
    """What the file has for this broker, for all brokers and for groups. Raises CorruptCheckpoint, NewerFormat,
    OSError."""
    try:
        data = read_whole(path)
    except FileNotFoundError:
        return {}, {}, {}
    try:
        document = versioned.parse(data, path, VERSION)
        groups = document.get("groups", {})
        if not isinstance(groups, dict):
            raise ValueError("groups by their names expected")
        own = {str(name): _texts(values) for name, values in groups.items()}
        return _texts(document["broker"]), _texts(document["default"]), own
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"not the configuration that clients have set ({error}); move the file away to start without it", path=path
        ) from None


def _texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise ValueError("names and values as text expected")
    return found
