"""Appending from asyncio tasks: the tasks of one event loop share commits and need no thread each.

One worker of the loop's executor waits for the disk, whatever the number of tasks. It notifies the loop of a whole
group with one call. One thread per appender would take the GIL twice for each append.
"""

from __future__ import annotations

import asyncio

from klog.config.table import LONG_MAX
from klog.log.options import Compression
from klog.log.state._log_core import LogCore
from klog.log.write._append import EncodedGroups, append, nothing
from klog.log.write._append_info import AppendInfo
from klog.log.write._commit import Ticket
from klog.record import Records


async def append_async(log: LogCore, records: Records, compression: Compression) -> AppendInfo:
    """Append records from a task of the running event loop."""
    commits = log.commits
    if commits is None:
        if may_flush(log):
            return await asyncio.to_thread(append, log, records, compression)
        return append(log, records, compression)
    loop = asyncio.get_running_loop()
    info: AppendInfo | None = None
    for group, now in EncodedGroups(log, records, compression):
        appended = await commits.submit(log, Ticket(group, now), loop)
        info = appended if info is None else info.joined(appended)
    log.options.scheduler.run_due()
    return nothing(log) if info is None else info


def may_flush(log: LogCore) -> bool:
    """May an append have to flush?"""
    config = log.config
    return bool(config.flush_ms != LONG_MAX or config.flush_messages != LONG_MAX or config.klog_flush_bytes)
