"""klog top DIR"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from klog.cli.cache import CLEAR, percent
from klog.cli.group import OK
from klog.cli.output import (
    Seconds,
    counted,
    json_option,
    note_dropped,
    print_json,
    printable,
    table,
    usage_errors,
    wrapped,
)
from klog.shown import size, to_json

if TYPE_CHECKING:
    from klog.inspect.activity import DeviceActivity, DirectoryActivity, PartitionActivity

_OTHER_LINES = 6  # of the screen: the heads, the columns left out, the prompt
# Columns in order, with their usual widths: the same ones from round to round, as far as these widths allow.
_COLUMNS: dict[str, tuple[int, Callable[[PartitionActivity], object]]] = {
    "TOPIC": (12, lambda each: each.topic),
    "PARTITION": (9, lambda each: each.partition),
    "RECORDS/S": (9, lambda each: _rate(each.records_per_second)),
    "BYTES/S": (11, lambda each: _bytes(each.bytes_per_second)),
    "END": (12, lambda each: each.log_end_offset),
    "SIZE": (9, lambda each: size(each.size)),
    "SEGMENTS": (8, lambda each: each.segments),
    "CACHED": (6, lambda each: None if each.cached_share is None else f"{percent(each.cached_share)}%"),
    "LAG": (9, lambda each: _furthest_behind(each)[0]),
    "READER": (12, lambda each: _furthest_behind(each)[1]),
}
_TEXTS = ("TOPIC", "READER")
_DROP = ("SEGMENTS", "CACHED", "END", "SIZE", "READER", "BYTES/S")


@click.command("top")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--interval", metavar="SECONDS", default=2.0, type=Seconds(min=0.01), help="Between two samples.")
@click.option("--once", is_flag=True, help="Show one interval, then end.")
@json_option
@click.pass_context
def command(ctx: click.Context, directories: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Show live what happens in log directories: records and bytes in, sizes, lags of readers, use of the disks.

    DIR is a log.dir of klog or of a broker; nothing in it is changed, and no data is read but that of
    __consumer_offsets. The busiest partitions come first; on a terminal as many as fit, and columns as its width
    allows. READER is the named reader of klog, or Kafka's group, with the largest lag, LAG the number of records. A
    disk's utilisation is the share of time in which it works, its queue the mean number of requests, of all processes.
    With --json each interval is one line. Ctrl-C ends it, with exit code 0.

    \b
    klog top data
    klog top data --once --json | jq '.partitions[] | [.topic, .bytes_per_second]'
    """
    from klog.clock import SystemClock
    from klog.inspect.activity import ActivityWatcher

    clock = SystemClock()
    try:
        with usage_errors(), ActivityWatcher(list(directories)) as watcher:
            watcher.sample()
            while True:
                clock.sleep(interval)
                found = watcher.sample()
                if not as_json:
                    _show(found, live=not once and sys.stdout.isatty())
                elif once:
                    print_json(found.to_dict())
                else:
                    click.echo(to_json(found.to_dict()))
                sys.stdout.flush()
                if once:
                    return
    except KeyboardInterrupt:  # the usual end
        ctx.exit(OK)


def _show(found: DirectoryActivity, *, live: bool) -> None:
    width, height = shutil.get_terminal_size() if sys.stdout.isatty() else (10_000, 10_000)
    if live:
        click.echo(CLEAR, nl=False)
    for device in found.devices:
        click.echo(wrapped(_device(device), "  "))
    busiest = sorted(found.partitions, key=lambda each: (-(each.bytes_per_second or 0), each.topic, each.partition))
    most = max(height - _OTHER_LINES - len(found.devices) - len(found.problems), 1) if live else None
    rows = busiest[:most]
    columns = columns_for(width)
    right = "".join("-" if name in _TEXTS else "r" for name in columns)
    dropped = dict.fromkeys(name for name in _DROP if name not in columns)
    drop = [name for name in _DROP if name in columns]  # after all, if the values are wide
    cells = [[_COLUMNS[name][1](each) for name in columns] for each in rows]
    table(columns, cells, right=right, drop=drop, dropped=dropped)
    note_dropped(dropped)
    if len(rows) < len(busiest):
        click.echo(f"and {counted(len(busiest) - len(rows), 'more partition')}")
    for name, problem in found.problems.items():
        click.echo(printable(f"klog: {name}: {problem}"), err=True)


def columns_for(width: int) -> list[str]:
    """The columns that fit into a terminal of this width."""
    columns = list(_COLUMNS)
    for name in _DROP:
        if sum(_COLUMNS[each][0] + 2 for each in columns) - 2 <= width:
            break
        columns.remove(name)
    return columns


def _device(device: DeviceActivity) -> str:
    if device.utilisation is None or device.queue_length is None:
        return f"{device.device}: no figures yet"
    return (
        f"{device.device}: {device.utilisation:.0%} used, queue {device.queue_length:.1f}, "
        f"{_bytes(device.read_bytes_per_second)}/s read, {_bytes(device.written_bytes_per_second)}/s written"
    )


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _bytes(value: float | None) -> str | None:
    return None if value is None else size(round(value))


def _furthest_behind(each: PartitionActivity) -> tuple[str | None, str | None]:
    """The greatest lag, and the reader or group that has it."""
    lags = [*each.lag.items(), *each.group_lag.items()]
    if not lags:
        return None, None
    name, lag = max(lags, key=lambda pair: pair[1])
    return f"{lag:,}", name
