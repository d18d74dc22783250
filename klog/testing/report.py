"""The report of a failed test about its broker: records, groups and faults, as text of a limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHARACTERS = 8000
_log = logger_of("testing")


class Reported(Protocol):
    """What it needs of a TestBroker."""

    @property
    def is_running(self) -> bool: ...
    @property
    def faults(self) -> Iterable[object]: ...
    def dump(self) -> str: ...


def report(broker: Reported) -> str:
    """The newest records of all topics, the groups, and the faults with their hits; never an exception: it would hide
    the failure of the test."""
    if not broker.is_running:
        parts = ["the broker is stopped"]
    else:
        try:
            parts = [broker.dump()]
        except Exception as error:
            _log.warning("event=dump_failed", exc_info=error)
            parts = [f"the topics cannot be read: {error!r}"]
    parts += map(repr, broker.faults)
    text = "\n".join(parts)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}\n... {len(text) - _CHARACTERS} characters more"


def add_report(error: BaseException, broker: Reported) -> None:
    """Add it to an exception that ends a test."""
    error.add_note(f"{broker!r}\n{report(broker)}")
