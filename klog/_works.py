"""Binds the methods of Log that packages above klog.log do. They are imported when they are first called."""

from __future__ import annotations

from typing import Any

from klog.log import works
from klog.log.core import LogCore


def _compact(log: LogCore, **how: Any) -> Any:
    from klog.cleaner import compact

    return compact(log, **how)


def _purge_key(log: LogCore, key: bytes, **how: Any) -> Any:
    from klog.cleaner import purge_key

    return purge_key(log, key, **how)


def _verify(log: LogCore, progress: Any) -> Any:
    from klog.inspect.verify import verify_log

    return verify_log(log, progress)


def _plot(log: LogCore, cached: Any, ax: Any) -> Any:
    from klog.inspect.log_plot import plot

    return plot(log, cached, ax)


def bind() -> None:
    """Bind them."""
    works.bind(works.Works(_compact, _purge_key, _verify, _plot))
