"""klog cache DIR"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from klog.cli.completing import topics
from klog.cli.group import FAILURE
from klog.cli.output import Seconds, counted, json_option, print_json, progress_bar, progress_option, table, wrapped
from klog.shown import size, to_json

if TYPE_CHECKING:
    from klog.disk.monitor import Activity

CELLS, PLOT_CELLS = 32, 256
_BLOCKS, _DIGITS = "·▁▂▃▄▅▆▇█", ".123456789#"
_HEADS = ("TOPIC", "PARTITION", "SEGMENT", "SIZE", "CACHED", "%", "DIRTY", "WRITE-BACK", "EVICTED", "OLDEST TO NEWEST")
_DROP = ("EVICTED", "WRITE-BACK", "DIRTY", "OLDEST TO NEWEST", "SEGMENT")
CLEAR = "\x1b[H\x1b[2J"


@click.command("cache")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--topic", help="Only this topic.", shell_complete=topics)
@click.option("--segments/--no-segments", default=True, help="A line for each segment, not only for each partition.")
@click.option("--plot", metavar="FILE", help="Draw hot and cold ranges: .png, .svg or .pdf.")
@click.option("--watch", metavar="SECONDS", type=Seconds(min=0.01), help="Repeat at this interval.")
@click.option("--looks", metavar="N", type=click.IntRange(min=1), help="With --watch: stop after N rounds.")
@json_option
@progress_option
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    topic: str | None,
    segments: bool,
    plot: str | None,
    watch: float | None,
    looks: int | None,
    as_json: bool,
    progress: bool,
) -> None:
    """How much of each log is in the page cache: cached, dirty, being written, evicted; and which ranges are hot.

    DIR is a log.dir (of klog or of a broker, running or stopped) or one partition directory. Its data is not read, so
    the page cache stays as it is. A row of blocks is a log or a segment from its oldest byte to its newest: · is not in
    memory, █ is. --watch also shows the kernel's counters for the interval; with --json each round is one line.
    A partition that cannot be examined is reported on stderr, and the exit code is 1.

    \b
    klog cache data
    klog cache /var/lib/kafka/data --topic flights --plot cache.png
    klog cache data --json | jq '.topics[] | [.topic, .share]'
    """
    from klog.inspect import page_cache

    if looks is not None and watch is None:
        raise click.UsageError("--looks needs --watch")
    if plot is not None:
        _check_plot(plot)
    cells = PLOT_CELLS if plot is not None else CELLS
    failed = False
    for activity in _activities(watch, looks):
        with progress_bar(progress and watch is None) as draw_progress:
            found = page_cache(directory, topic=topic, cells=cells, progress=draw_progress)
        if as_json and watch is not None:
            click.echo(to_json({**found, "activity": _activity(activity)}))
        elif as_json:
            print_json(found)
        else:
            if watch is not None and sys.stdout.isatty():
                click.echo(CLEAR, nl=False)
            _print(found, segments, activity)
        sys.stdout.flush()
        for name in found["topics"]:
            for entry in name["partitions"]:
                if entry["problem"]:
                    failed = True
                    click.echo(f"klog: {entry['problem']}", err=True)
        if plot is not None:
            from klog.inspect.cached_plot import draw

            draw(found, plot)
            if not as_json:
                click.echo(f"drawn: {plot}", err=True)
    if failed:
        ctx.exit(FAILURE)


def _check_plot(path: str) -> None:
    from klog.inspect.cached_plot import check

    try:
        check(path)
    except ValueError as error:
        raise click.UsageError(f"--plot {error}") from None


def _activities(watch: float | None, looks: int | None) -> Iterator[Activity | None]:
    """Yield once; with watch again and again, with the activity since the previous round, None for the first."""
    yield None
    if watch is None:
        return
    from klog.clock import SystemClock
    from klog.disk.monitor import PageCacheMonitor

    clock = SystemClock()
    monitor, look = PageCacheMonitor(clock=clock), 1
    while looks is None or look < looks:
        clock.sleep(watch)
        yield monitor.sample()
        look += 1


def _activity(activity: Activity | None) -> dict[str, Any] | None:
    if activity is None:
        return None
    from klog.disk.monitor import COUNTERS, NAIVE

    return {
        "seconds": round(activity.seconds, 3),
        "counts": dict(activity.counts),
        "rates": {name: round(rate, 3) for name, rate in activity.rates.items()},
        "meanings": {name: COUNTERS[name] for name in activity.counts},
        "naive_hit_rate": activity.naive_hit_rate,
        "naive_hit_rate_is": NAIVE,
    }


def _print(found: dict[str, Any], segments: bool, activity: Activity | None) -> None:
    for line in (*_machine_lines(found["machine"]), *(_activity_lines(activity) if activity is not None else ())):
        click.echo(wrapped(line, "  "))
    click.echo()
    table(_HEADS, list(_rows(found, segments)), right="-r-rrrrrrl", drop=_DROP)


def _machine_lines(machine: dict[str, Any]) -> Iterator[str]:
    def known(name: str) -> str:
        return "?" if machine[name] is None else size(machine[name])

    yield (
        f"this machine: {known('total_bytes')} memory, {known('cached_bytes')} page cache, "
        f"{known('dirty_bytes')} dirty, {known('writeback_bytes')} being written"
    )
    yield (
        f"dirty pages are written in the background from {known('dirty_background_limit_bytes')} on, "
        f"and writers wait from {known('dirty_limit_bytes')} on"
    )


def _activity_lines(activity: Activity) -> Iterator[str]:
    def rate(name: str, unit: int = 1) -> str:
        value = activity.rates.get(name)
        return "?" if value is None else size(int(value * unit)) if unit > 1 else f"{value:,.0f}"

    naive = "nothing was read" if activity.naive_hit_rate is None else f"{100 * activity.naive_hit_rate:.1f}%"
    yield (
        f"in {activity.seconds:.1f} s, all processes: {rate('pgpgin', 1024)}/s read from disks (pgpgin), "
        f"{rate('pgpgout', 1024)}/s written (pgpgout), {rate('pgmajfault')}/s faults that waited (pgmajfault), "
        f"{rate('workingset_refault_file')}/s pages evicted too soon"
    )
    yield f"1 - pgmajfault/pgpgin, often called a hit rate, which it is not: {naive}. The table shows what is in memory"


def _rows(found: dict[str, Any], segments: bool) -> Iterator[Sequence[Any]]:
    for topic in found["topics"]:
        for entry in topic["partitions"]:
            named = counted(len(entry["segments"]), "segment")
            yield (topic["topic"], entry["partition"], named, *_numbers(entry))
            if segments and len(entry["segments"]) > 1:
                for segment in entry["segments"]:
                    yield ("", "", segment["base_offset"], *_numbers(segment))
    if sum(len(topic["partitions"]) for topic in found["topics"]) > 1:
        yield ("all", "", "", *_numbers({**found, "heat": []}))


def _numbers(entry: dict[str, Any]) -> Sequence[Any]:
    def known(name: str) -> str | None:
        return None if entry[name] is None else size(entry[name])

    return (
        size(entry["size"]),
        size(entry["cached_bytes"]),
        percent(entry["share"]) if entry["memory_bytes"] else None,
        known("dirty_bytes"),
        known("writeback_bytes"),
        known("evicted_bytes"),
        blocks(entry["heat"]),
    )


def percent(share: float) -> str:
    """A share as a percentage. Only 1 is shown as 100, and only 0 as 0."""
    return f"{share * 100:.0f}" if share in (0, 1) else str(min(max(round(share * 100), 1), 99))


def blocks(heat: Sequence[float]) -> str:
    """A row of at most CELLS blocks, from nothing in memory to all of it; digits (tenths) if stdout cannot show
    blocks. Only a part that is wholly hot or cold is shown as such."""
    if len(heat) > CELLS:
        heat = [
            sum(part) / len(part)
            for part in (heat[len(heat) * i // CELLS : len(heat) * (i + 1) // CELLS] for i in range(CELLS))
        ]
    levels = _BLOCKS if _has_blocks() else _DIGITS
    last = len(levels) - 1
    return "".join(
        levels[0] if share <= 0 else levels[last] if share >= 1 else levels[1 + int(share * (last - 1))]
        for share in heat
    )


def _has_blocks() -> bool:
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
