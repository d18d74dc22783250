"""The core of a log, for the packages above: what the cleaner, the manager and the checks work on instead of a Log."""

from klog.log.state._log_core import LogCore
from klog.log.write._append import append_group, encoded_whole

__all__ = ["LogCore", "append_group", "encoded_whole"]
