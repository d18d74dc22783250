"""klog repair DIR"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from klog.cli.group import DATA_PROBLEM, FAILURE
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
    table,
    wrapped,
)
from klog.shown import size


@click.command("repair")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Only report what a repair would do.")
@click.option(
    "--scratch", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="Of a dry run: copies here."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@progress_option
@click.pass_context
def command(
    ctx: click.Context, directory: str, dry_run: bool, scratch: str | None, yes: bool, as_json: bool, progress: bool
) -> None:
    """Cut what cannot be read and rebuild what is wrong, as a broker does after a crash, and keep the originals.

    DIR is a log.dir or one partition directory, of a stopped broker. A log is cut at its first invalid batch, and all
    that follows is gone from it; `klog rescue` keeps the intact batches after the damage. Only partitions in which
    `klog verify` finds a problem are touched. Their originals are moved to NAME.before-repair-TIME beside DIR. Exit
    code 3: a dry run found work, or problems remain.

    \b
    klog repair /var/lib/kafka/data --dry-run
    klog repair /var/lib/kafka/data --yes --json | jq '.partitions[].files'
    """
    from klog.repairing import repair

    if scratch is not None and not dry_run:
        raise click.UsageError("--scratch is for --dry-run: a repair needs the file system of DIR.", ctx)
    if not dry_run and not yes:
        check_question(as_json)
        with progress_bar(progress) as draw:
            planned = repair(directory, dry_run=True, progress=draw)
        _print(planned)
        if not planned["partitions"]:
            _exit(ctx, planned)
        if not agreed("Repair?"):
            ctx.exit(FAILURE)
    with progress_bar(progress) as draw:
        found = repair(directory, dry_run=dry_run, scratch=scratch, progress=draw)
    if as_json:
        print_json(found)
    else:
        _print(found)
    _exit(ctx, found)


def _exit(ctx: click.Context, found: dict[str, Any]) -> NoReturn:
    """Exit with 3 if problems remain, or a dry run has found work."""
    sys.stdout.flush()
    left = found["problems"] or any(entry["error"] or entry["remaining"] for entry in found["partitions"])
    ctx.exit(DATA_PROBLEM if left or (found["dry_run"] and found["partitions"]) else 0)


def _print(found: dict[str, Any]) -> None:
    entries = found["partitions"]
    if entries:
        rows = [
            (
                f"{each['topic']}-{each['partition']}",
                each["log_end_before"],
                each["log_end_after"],
                size(max(each["bytes_cut"], 0)),
                each["intact_records_cut"],
                len(each["files"]),
            )
            for each in entries
        ]
        heads = ("PARTITION", "END BEFORE", "END AFTER", "CUT", "INTACT RECORDS CUT", "FILES CHANGED")
        table(heads, rows, right="-rrrrr", drop=("FILES CHANGED", "END BEFORE"))
    for each in entries:
        for line in each["details"] or each["problems"]:
            click.echo(wrapped(printable(line), "  "))
        for line in each["remaining"]:
            click.echo(f"klog: remains: {printable(line)}", err=True)
        if each["error"]:
            click.echo(f"klog: not repaired: {printable(each['error'])}", err=True)
    intact = sum(each["intact_records_cut"] for each in entries)
    if intact:
        source = found["copy"] or found["path"]
        records = counted(intact, "intact record")
        click.echo(wrapped(f"klog rescue {printable(source)} --to NEWDIR keeps the {records} after the damage", "  "))
    for line in found["problems"]:
        click.echo(f"klog: not repaired: {printable(line)}", err=True)
    if not entries and found["problems"]:
        click.echo("no partition to repair")
    elif not entries:
        click.echo(f"{styled('sound', fg='green')}: nothing to repair")
    elif found["dry_run"]:
        click.echo(f"dry run: {counted(len(entries), 'partition')} to repair, nothing was changed")
    elif found["copy"]:
        click.echo(f"the originals are in {printable(found['copy'])}")
