"""Refused: the error of an admin request, or of a part of it, that cannot be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.broker.partitions import code_of
from klog.logger import logger_of
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logger_of("broker")
OK = ErrorCode.NONE


class Refused(Exception):
    """An error code with a text for the client."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)


def outcome(work: Callable[[], object], what: str) -> tuple[ErrorCode, str | None]:
    """Do the work. Returns (NONE, None), or the code and the text of its failure: a failure is the response to one part
    of a request, and the other parts go on. what: names the work in the log."""
    try:
        work()
    except Refused as refused:
        return refused.code, refused.message
    except Exception as error:
        code = code_of(error)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.exception("event=admin_failed work=%s", what)
            return code, None  # the text may contain what a client must not see
        return code, str(error)
    return OK, None


def repeated(names: list[str]) -> set[str]:
    """The names that occur more than once."""
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
