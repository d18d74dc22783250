"""klog tune DIR"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from klog.cli.group import FAILURE
from klog.cli.output import (
    agreed,
    check_question,
    counted,
    json_option,
    print_json,
    printable,
    progress_bar,
    progress_option,
    styled,
    wrapped,
)

if TYPE_CHECKING:
    from klog.tuning import Recommendation, TuningReport, Workload

_NEVER = str(2**63 - 1)  # of flush.messages and flush.ms
_PROFILES = ("high-throughput-writes", "high-throughput-reads", "low-latency", "balanced")


@click.command("tune")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--profile", type=click.Choice(_PROFILES), help="For every topic; by default what its batches match.")
@click.option("--disk/--no-disk", default=True, help="Measure the disk: writes about 64 MiB in DIR for 5 seconds.")
@click.option("--apply", "changes", is_flag=True, help="Set the recommended topic configurations, after a question.")
@click.option("--dry-run", is_flag=True, help="With --apply: change nothing.")
@click.option("--yes", is_flag=True, help="With --apply: do not ask.")
@json_option
@progress_option
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    profile: str | None,
    disk: bool,
    changes: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    progress: bool,
) -> None:
    """Recommend settings from the workload that DIR has seen and the speed of its disk.

    Reads the headers of each topic's newest batches, and measures the disk in a new directory inside DIR, which it
    removes afterwards. Each setting is shown with its current and its recommended value, the reason and the expected
    effect; a broker's directory does not hold the current ones. Kafka's internal topics are left out. --apply sets the
    settings of topics; no other process may have DIR open for writing then. Broker-level settings are printed as lines
    of a server.properties.

    \b
    klog tune data
    klog tune /var/lib/kafka/data --no-disk --json | jq '.recommendations[]'
    klog tune data --profile low-latency --apply
    """
    from klog.tuning import tune

    if (dry_run or yes) and not changes:
        raise click.UsageError("--dry-run and --yes need --apply")
    asks = changes and not (dry_run or yes)
    if asks:
        check_question(as_json)
    with progress_bar(progress) as draw:
        report = tune(directory, profile=profile, disk=disk, progress=draw)
    if not as_json:
        _show(report)
        sys.stdout.flush()
    applied: dict[str, dict[str, str]] = {}
    if changes and not dry_run:
        count = sum(each.topic is not None for each in report.recommendations)
        if asks and count and not agreed(f"Set {counted(count, 'setting')} of topics?"):
            ctx.exit(FAILURE)
        applied = _apply(directory, report) if count else {}
    if as_json:
        print_json({**report.to_dict(), "applied": applied})
    elif changes:
        click.echo(f"changed: {', '.join(applied)}" if applied else "nothing was changed")


def _apply(directory: str, report: TuningReport) -> dict[str, dict[str, str]]:
    from klog.manager import open_directory
    from klog.tuning import apply

    with open_directory(directory) as logs:
        return apply(logs, report)


def _show(report: TuningReport) -> None:
    for workload in report.workloads:
        click.echo(styled(printable(f"{workload.topic}: {report.profiles[workload.topic]}"), bold=True))
        click.echo("  " + wrapped(_seen(workload), "    ", 2))
        _show_all([each for each in report.recommendations if each.topic == workload.topic])
    lines = [each for each in report.recommendations if each.topic is None]
    if lines:
        click.echo(styled("server.properties", bold=True))
        _show_all(lines)
        for line in report.server_properties:
            click.echo(line)
    for note in report.notes:
        click.echo(wrapped(f"note: {printable(note)}", "  "))
    if not report.recommendations:
        click.echo("nothing to change")


def _seen(workload: Workload) -> str:
    return (
        f"seen: {counted(workload.seen_batches, 'batch', 'batches')}, the median {workload.batch_bytes:,.0f} bytes "
        f"with {counted(round(workload.batch_records), 'record')}; {workload.bytes_per_second:,.0f} bytes per second, "
        f"{workload.compressed:.0%} compressed; {counted(workload.segments, 'segment')}"
    )


def _show_all(recommendations: list[Recommendation]) -> None:
    """Print the recommendations of one topic, or those of the broker. Each reason is printed once."""
    reason = None
    for each in recommendations:
        current = "unknown" if each.current is None else "never" if each.current == _NEVER else each.current
        if each.topic is None:
            current += " by default"
        click.echo(f"  {each.key}: {current} → {each.recommended}")
        if each.reason != reason:
            click.echo("      " + wrapped(f"why: {printable(each.reason)}", "        ", 6))
        click.echo("      " + wrapped(f"effect: {printable(each.effect)}", "        ", 6))
        reason = each.reason
