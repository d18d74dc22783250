"""klog top DIR"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from klog.cli.group import OK
from klog.cli.output import json_option, print_json, printable, table
from klog.shown import size, to_json

if TYPE_CHECKING:
    from klog.inspect.activity import DeviceActivity, DirectoryActivity, PartitionActivity

_CLEAR = "\x1b[H\x1b[2J"
_OTHER_LINES = 5  # of the screen: the heads, the devices, the prompt
# Columns in order, with their widths; the last ones of _LESS_IMPORTANT are left out first on a narrow terminal.
_COLUMNS: dict[str, tuple[int, Callable[[PartitionActivity], object]]] = {
    "TOPIC": (16, lambda each: each.topic),
    "PARTITION": (9, lambda each: each.partition),
    "RECORDS/S": (9, lambda each: _rate(each.records_per_second)),
    "BYTES/S": (11, lambda each: _bytes(each.bytes_per_second)),
    "END": (12, lambda each: each.log_end_offset),
    "SIZE": (9, lambda each: size(each.size)),
    "SEGMENTS": (8, lambda each: each.segments),
    "CACHED": (6, lambda each: None if each.cached_share is None else f"{each.cached_share:.0%}"),
    "LAG": (16, lambda each: _lag(each.lag)),
}
_LESS_IMPORTANT = ("LAG", "SIZE", "END", "CACHED", "SEGMENTS")


@click.command("top")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--interval", metavar="SECONDS", default=2.0, type=click.FloatRange(min=0.01), help="Between two looks.")
@click.option("--once", is_flag=True, help="Show one interval, then end.")
@json_option
@click.pass_context
def command(ctx: click.Context, directories: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Show live what happens in log directories: records and bytes in, sizes, lags of named readers, use of the disks.

    DIR is a log.dir of klog or of a broker; nothing in it is changed, and no data is read. The busiest partitions come
    first; on a terminal as many as fit, and columns as its width allows. LAG is that of the reader furthest behind. A
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
        with ActivityWatcher(list(directories)) as watcher:
            watcher.look()
            while True:
                clock.sleep(interval)
                found = watcher.look()
                if not as_json:
                    _show(found)
                elif once:
                    print_json(found.to_dict())
                else:
                    click.echo(to_json(found.to_dict()))
                sys.stdout.flush()
                if once:
                    return
    except KeyboardInterrupt:  # the usual end
        ctx.exit(OK)


def _show(found: DirectoryActivity) -> None:
    live = sys.stdout.isatty()
    width, height = shutil.get_terminal_size() if live else (10_000, 10_000)
    if live:
        click.echo(_CLEAR, nl=False)
    for device in found.devices:
        click.echo(_device(device))
    busiest = sorted(found.partitions, key=lambda each: (-(each.bytes_per_second or 0), each.topic, each.partition))
    rows = busiest[: max(height - _OTHER_LINES - len(found.devices) - len(found.problems), 1)]
    columns = columns_for(width)
    right = "".join("-" if name in ("TOPIC", "LAG") else "r" for name in columns)
    table(columns, [[_COLUMNS[name][1](each) for name in columns] for each in rows], right=right)
    if len(rows) < len(busiest):
        click.echo(f"and {len(busiest) - len(rows)} more partitions")
    for name, problem in found.problems.items():
        click.echo(printable(f"klog: {name}: {problem}"), err=True)


def columns_for(width: int) -> list[str]:
    """The columns that fit into a terminal of this width."""
    columns = list(_COLUMNS)
    for name in reversed(_LESS_IMPORTANT):
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


def _lag(lags: dict[str, int]) -> str | None:
    """The reader furthest behind."""
    if not lags:
        return None
    name = max(lags, key=lambda each: lags[each])
    return f"{lags[name]:,} {name}"
