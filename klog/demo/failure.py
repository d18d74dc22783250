"""The one error that means klog, not the caller, is wrong."""

from __future__ import annotations

from klog.errors import KlogError


class DemoFailed(KlogError):
    """The demo found something that must not be; the message says what. Please report it with that message."""
