"""Refused: a request of a group's member that gets an error code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog.protocol import ErrorCode


class Refused(Exception):
    """The state of the group does not change. code: for the response; str(): for its error_message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
