"""The levels of klog's loggers, which clients may read and set by the resource BROKER_LOGGER (KIP-412).

They last until the process ends. Kafka: LoggingController, RuntimeLoggerManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from klog.broker.admin.failures import Refused
from klog.logger import logger_names
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "root"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {level: name for name, level in _LEVELS.items() if name != "TRACE"}


def levels() -> dict[str, str]:
    """{logger: its level in Kafka's words}, sorted: the root logger and those of klog."""
    found = {ROOT: _name_of(logging.getLogger().getEffectiveLevel())}
    found.update((name, _name_of(logging.getLogger(name).getEffectiveLevel())) for name in logger_names())
    return dict(sorted(found.items()))


def alter(changes: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Set levels, all or none; None gives a logger the level of the one above it. Raises Refused."""
    known = levels()
    for name, level in changes.items():
        if name not in known:
            raise Refused(ErrorCode.INVALID_CONFIG, f"there is no logger {name!r}")
        if level is None and name == ROOT:
            raise Refused(ErrorCode.INVALID_REQUEST, "the root logger must have a level")
        if level is not None and level not in _LEVELS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"level {level!r}: choose from {', '.join(_LEVELS)}")
    if validate_only:
        return
    for name, level in changes.items():
        logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _name_of(level: int) -> str:
    """The word for a level; for one between two words, that of the lower one."""
    below = [each for each in _NAMES if each <= level]
    return _NAMES[max(below)] if below else "TRACE"
