"""klog bench disk [DIR], klog bench log [DIR]"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from klog import extras
from klog.cli.output import (
    Seconds,
    json_option,
    print_json,
    progress_bar,
    progress_option,
    styled,
    table,
)
from klog.shown import size

if TYPE_CHECKING:
    from klog.trial import Report, Result

BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@click.group("bench")
def command() -> None:
    """Measure this machine.

    \b
    klog bench log /var/lib/klog
    klog bench disk /var/lib/klog
    """


_directory = click.argument(
    "directory", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False, writable=True)
)


@command.command("log")
@_directory
@click.option(
    "--size",
    "mib",
    metavar="MIB",
    default=128,
    show_default=True,
    type=click.IntRange(min=4),
    help="How much to write in all, roughly.",
)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=Seconds(min=0.1),
    help="How long to measure, roughly.",
)
@json_option
@progress_option
def log(directory: str, mib: int, seconds: float, as_json: bool, progress: bool) -> None:
    """Measure klog on the disk of DIR: appends by durability, reads, compaction, with records of 116 bytes.

    One thread appends 100 records a call. With durability os and interval, append() returns when they are in the page
    cache, with sync when they are on disk; reads are from the page cache. All records are read back and compared with
    what was appended: exit code 3 if they differ. It works in a new directory inside DIR, which it removes afterwards.
    The ways of a contest are measured in turn, in several rounds. × is a way's ratio to the first one.

    \b
    klog bench log /var/lib/klog
    klog bench log --seconds 3 --json | jq '.results[] | [.contest, .way, .figures]'
    """
    from klog.trial import try_log

    click.echo(f"writing about {mib} MiB below {directory} in about {seconds:g} s", err=True)
    with progress_bar(progress) as draw:
        report = try_log(directory, size=mib << 20, seconds=seconds, progress=draw)
    if as_json:
        print_json(report.to_dict())
        return
    _show_all(report)
    click.echo(_summary(report, "all answers are right"))


@command.command("disk")
@_directory
@click.option(
    "--size", "mib", metavar="MIB", default=512, type=click.IntRange(min=32), help="How much to write in all, roughly."
)
@click.option("--seconds", default=30.0, type=Seconds(min=0.1), help="How long to measure, roughly.")
@click.option("--plot", metavar="FILE", help="Draw the bars: .png, .svg or .pdf. Needs matplotlib.")
@json_option
@progress_option
def disk(directory: str, mib: int, seconds: float, plot: str | None, as_json: bool, progress: bool) -> None:
    """Compare I/O policies on the disk of DIR: appends, durable appends, reads, sending. Ends with advice.

    It works in a new directory inside DIR, which it removes afterwards; other files in DIR are not touched. The ways of
    a contest are measured in turn, in several rounds. × is a way's ratio to the first one: the median over the rounds.

    \b
    klog bench disk /var/lib/klog
    klog bench disk --seconds 5 --size 64 --json | jq '.advice[]'
    """
    from klog.trial import try_disk

    if plot is not None:
        _pyplot()  # raises before half a minute of work
    click.echo(f"writing about {mib} MiB below {directory} in about {seconds:g} s", err=True)
    with progress_bar(progress) as draw:
        report = try_disk(directory, size=mib << 20, seconds=seconds, progress=draw)
    if plot is not None:
        _plot(report, plot)
    if as_json:
        print_json(report.to_dict())
        return
    _show_all(report)
    for note in report.notes:
        click.echo(f"note: {note}")
    click.echo(styled("advice", bold=True))
    for advice in report.advice:
        click.echo(f"  {advice.setting}")
        click.echo(f"      {advice.reason}")
    click.echo(_summary(report))


def _summary(report: Report, *more: str) -> str:
    written = f"{size(report.bytes_written)} written in {report.seconds:.0f} s"
    return "; ".join((*more, written, "differences below 10% are noise"))


def _show_all(report: Report) -> None:
    for contest in dict.fromkeys(one.contest for one in report.results):
        _show(contest, [one for one in report.results if one.contest == contest])


def _show(contest: str, results: list[Result]) -> None:
    names = list(results[0].figures)
    longest = max(one.value for one in results)
    rows = [
        [one.way, *(_number(one.figures[name]) for name in names), f"{one.ratio:.2f}", bar(one.value / longest)]
        for one in results
    ]
    table([contest.upper(), *names, "×", ""], rows, right="l" + "r" * (len(names) + 1) + "l", drop=("",))
    click.echo("")


def bar(share: float, encoding: str | None = None) -> str:
    """A bar of BAR_CELLS for 1, in eighths of a cell; in # if stdout cannot show blocks."""
    try:
        _EIGHTHS.encode(encoding or sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "#" * max(round(share * BAR_CELLS), 1)
    eighths = max(round(share * BAR_CELLS * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise click.UsageError(str(extras.missing("--plot", "matplotlib", "plot", error))) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _plot(report: Report, path: str) -> None:
    """Draw a panel for each contest, with a bar for each way."""
    pyplot = _pyplot()
    contests = list(dict.fromkeys(one.contest for one in report.results))
    figure, panels = pyplot.subplots(
        len(contests), 1, figsize=(8, 1 + 0.28 * len(report.results)), layout="constrained", squeeze=False,
        height_ratios=[sum(one.contest == contest for one in report.results) + 1 for contest in contests],
    )  # fmt: skip
    for contest, axes in zip(contests, panels[:, 0], strict=True):
        mine = [one for one in report.results if one.contest == contest]
        bars = axes.barh([one.way for one in mine], [one.value for one in mine], color="#2a7f62")
        axes.bar_label(bars, [f" {_number(one.value)}  ×{one.ratio:.2f}" for one in mine], fontsize=7)
        axes.set_title(f"{contest}, {mine[0].unit}", loc="left", fontsize=9)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise click.UsageError(f"--plot: {error}") from error
    finally:
        pyplot.close(figure)
