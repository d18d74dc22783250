"""Loggers, one for each package: "klog.log", "klog.manager". Silent until the program configures logging.

To import logging takes as long as half of klog.Log, and a program that has not done so has no handler for a message.
Until then messages are dropped here; write_warnings() is for a program that wants them nevertheless.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import logging

_names: set[str] = set()
_format: str | None = None  # of write_warnings()


class _Late:
    """A logger that is made once logging has been imported. Any thread."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if "logging" not in sys.modules and (_format is None or attribute == "info"):
            return _drop
        return getattr(_logging().getLogger(self._name), attribute)


def logger_of(package: str) -> logging.Logger:
    """Return the logger of a package of klog, by its name without "klog."."""
    _names.add(f"klog.{package}")
    return cast("logging.Logger", _Late(f"klog.{package}"))


def logger_names() -> list[str]:
    """The loggers of the packages that have been imported, and that above them, sorted."""
    return sorted({"klog", *_names})


def write_warnings(form: str) -> None:
    """Let warnings and errors be written to stderr, unless the program has configured logging. form: that of
    logging.Formatter."""
    global _format
    _format = form
    if "logging" in sys.modules:
        _logging()


def _logging() -> Any:
    """The logging module, configured."""
    global _format
    import logging

    ours = logging.getLogger("klog")
    if not ours.handlers:
        ours.addHandler(logging.NullHandler())
    if _format is not None:
        logging.basicConfig(level=logging.WARNING, format=_format)
        _format = None
    return logging


def _drop(*_values: object, **_options: object) -> None: ...


if "logging" in sys.modules:
    _logging()  # silent also for what the program itself logs under klog's names
