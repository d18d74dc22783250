"""The error that means a bug in klog, not a mistake of the caller."""

from __future__ import annotations

from klog.errors import KlogError


class DemoFailed(KlogError):
    """The demo found a result that klog must never give; the message describes it. Please report it."""
