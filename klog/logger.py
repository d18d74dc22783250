"""Loggers, one for each package: "klog.log", "klog.manager". Silent until the program configures logging.

Not in klog/__init__.py: the logging module takes three times as long to import as the rest of `import klog`.
"""

from __future__ import annotations

import logging

logging.getLogger("klog").addHandler(logging.NullHandler())


def logger_of(package: str) -> logging.Logger:
    """Return the logger of a package of klog, by its name without "klog."."""
    return logging.getLogger(f"klog.{package}")
