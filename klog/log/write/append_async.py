"""Appending from asyncio tasks: the tasks of one event loop share commits and need no thread each.

One worker of the loop's executor waits for the disk, whatever the number of tasks. It notifies the loop of a whole
group with one call. One thread per appender would take the GIL twice for each append.
"""

from __future__ import annotations

import asyncio

from klog.arguments import LONG_MAX
from klog.log.options import Compression
from klog.log.state._log_core import LogCore
from klog.log.write._append import append, append_group, encoded_groups
from klog.log.write._append_info import AppendInfo, nothing
from klog.log.write._commit import CommitQueue, Ticket
from klog.record import BatchGroup, Records


async def append_async(log: LogCore, records: Records, compression: Compression) -> AppendInfo:
    """Append records from a task of the running event loop."""
    commits = log.commits
    if commits is None:
        if may_flush(log):
            return await asyncio.to_thread(append, log, records, compression)
        return append(log, records, compression)
    loop = asyncio.get_running_loop()
    info: AppendInfo | None = None
    for group, now in encoded_groups(log, records, compression):
        appended = await _submitted(log, commits, Ticket(group, now), loop)
        info = appended if info is None else info.joined(appended)
    log.options.scheduler.run_due()
    return nothing(log.log_end_offset, log.log_start_offset) if info is None else info


async def append_group_async(log: LogCore, group: BatchGroup, now: int) -> AppendInfo:
    """Append encoded records from a task of the running event loop. Blocks for a flush that is due; see may_flush()."""
    commits = log.commits
    if commits is None:
        return append_group(log, group, now)
    return await _submitted(log, commits, Ticket(group, now), asyncio.get_running_loop())


async def _submitted(log: LogCore, commits: CommitQueue, ticket: Ticket, loop: asyncio.AbstractEventLoop) -> AppendInfo:
    began = log.counters.append_begins(log.clock)
    try:
        info: AppendInfo = await commits.submit(log, ticket, loop)
    except Exception:
        log.counters.count_failed_append()
        raise
    log.counters.append_ends(began, log.clock)
    return info


def may_flush(log: LogCore) -> bool:
    """May an append have to flush?"""
    config = log.config
    return bool(config.flush_ms != LONG_MAX or config.flush_messages != LONG_MAX or config.klog_flush_bytes)
