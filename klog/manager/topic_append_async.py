"""Appends to a whole topic from asyncio tasks: the commits of its partitions run side by side, and tasks share them.

It imports asyncio, so it is imported where it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from klog.log import AppendInfo
from klog.log.log import Log
from klog.log.options import Compression
from klog.log.read.in_thread import in_thread
from klog.log.write.append_async import append_group_async, may_flush
from klog.manager.topic_append import Share, append_to_topic, count_in, encoded_shares, note_what_was_appended
from klog.record import Records


async def append_to_topic_async(
    logs: Sequence[Log], records: Records, compression: Compression, next_sticky: Callable[[], int]
) -> dict[int, AppendInfo]:
    """Return {partition: AppendInfo}, as append_to_topic does."""
    if any(log._core.commits is None and may_flush(log._core) for log in logs):
        return await in_thread(partial(append_to_topic, logs, records, compression, next_sticky))
    done: dict[int, AppendInfo] = {}
    try:
        for shares in encoded_shares(logs, records, compression, next_sticky):
            await _append(shares, done)
    except BaseException as error:
        note_what_was_appended(error, done)
        raise
    for log in logs:
        log._core.options.scheduler.run_due()
    return dict(sorted(done.items()))


async def _append(shares: list[Share], done: dict[int, AppendInfo]) -> None:
    """Append each partition's share; raise the first error after all have ended."""
    results = await asyncio.gather(
        *(append_group_async(log._core, group, now) for log, group, now in shares), return_exceptions=True
    )
    failure: BaseException | None = None
    for (log, _, _), result in zip(shares, results, strict=True):
        if isinstance(result, BaseException):
            failure = failure or result
        else:
            count_in(done, log, result)
    if failure is not None:
        raise failure
