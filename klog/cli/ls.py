"""klog ls DIR..."""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.group import FAILURE
from klog.cli.output import json_option, print_json, printable, table
from klog.shown import moment, size

_DROP = ("FIRST TIME", "HIGH WATERMARK", "SEGMENTS", "MAX TIME", "START")  # on a narrow terminal


@click.command("ls")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@json_option
@click.pass_context
def command(ctx: click.Context, directories: tuple[str, ...], as_json: bool) -> None:
    """List topics, partitions, offsets, sizes, segments and time span of log directories.

    DIR is a log.dir (of klog or of a broker, running or stopped) or one partition directory. Nothing in it is changed.
    Deleted, moved and stray partitions are listed on stderr. FIRST TIME is that of the first record, MAX TIME the
    greatest. A partition that cannot be read is listed with what is known of it, and the exit code is 1. The JSON of
    several directories is {"directories": [...]}, each as for a single one.

    \b
    klog ls data
    klog ls disk1/data disk2/data
    klog ls data --json | jq '.topics[].topic'
    """
    from klog.inspect import ls

    found = [ls(directory) for directory in directories]
    problems = [
        (entry["path"], entry["problem"])
        for each in found
        for topic in each["topics"]
        for entry in topic["partitions"]
        if entry["problem"]
    ]
    if as_json:
        print_json(found[0] if len(found) == 1 else {"directories": found})
    else:
        _print(found)
    for path, problem in problems:
        click.echo(f"klog: {printable(f'{path}: {problem}')}", err=True)
    if problems:
        sys.stdout.flush()
        ctx.exit(FAILURE)


def _print(found: list[dict[str, Any]]) -> None:
    several = len(found) > 1
    rows = [
        (*((each["path"],) if several else ()), *_row(topic, entry))
        for each in found
        for topic in each["topics"]
        for entry in topic["partitions"]
    ]
    heads = ("TOPIC", "PARTITION", "START", "END", "HIGH WATERMARK", "SIZE", "SEGMENTS", "FIRST TIME", "MAX TIME")
    table(("DIR", *heads) if several else heads, rows, right="--rrrrrrll" if several else "-rrrrrrll", drop=_DROP)
    if not rows:
        sys.stdout.flush()
        click.echo("klog: no topics here yet", err=True)
    for each in found:
        for other in each["other"]:
            click.echo(f"klog: {printable(other['path'])}: {other['state']}", err=True)


def _row(topic: dict[str, Any], entry: dict[str, Any]) -> tuple[Any, ...]:
    return (
        topic["topic"],
        entry["partition"],
        entry["log_start_offset"],
        entry["log_end_offset"],
        entry["high_watermark"],
        size(entry["size"]),
        entry["segments"],
        moment(entry["first_timestamp"]),
        moment(entry["max_timestamp"]),
    )
