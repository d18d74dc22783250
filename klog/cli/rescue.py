"""klog rescue DIR --to NEWDIR"""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.group import DATA_PROBLEM
from klog.cli.output import (
    json_option,
    print_json,
    printable,
    progress_bar,
    progress_option,
    table,
    usage_errors,
    wrapped,
)
from klog.shown import size


@click.command("rescue")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--to", metavar="NEWDIR", required=True, type=click.Path(), help="A directory that does not exist yet.")
@json_option
@progress_option
@click.pass_context
def command(ctx: click.Context, directory: str, to: str, as_json: bool, progress: bool) -> None:
    """Write every readable batch of a damaged directory into a new log.dir.

    DIR is a log.dir or one partition directory, and is only read. Offsets, leader epochs, producers, topic ids and
    configurations are kept; what cannot be read is a gap in the offsets, and listed with file, position and reason.
    Exit code 3 means that something is missing.

    \b
    klog rescue /mnt/dead-disk/kafka --to /var/lib/kafka/data
    klog rescue /mnt/dead-disk/kafka --to new --json | jq '.partitions[].missing[]'
    """
    from klog.repairing import rescue

    with usage_errors(), progress_bar(progress) as draw:
        found = rescue(directory, to, progress=draw)
    if as_json:
        print_json(found)
    else:
        _print(found)
    sys.stdout.flush()
    incomplete = any(each["missing"] or each["error"] for each in found["partitions"])
    if incomplete or found["problems"] or found["missing_files"]:
        ctx.exit(DATA_PROBLEM)


def _print(found: dict[str, Any]) -> None:
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            each["log_start_offset"],
            each["log_end_offset"],
            each["batches"],
            each["records"],
            size(each["bytes"]),
            len(each["missing"]),
        )
        for each in found["partitions"]
    ]
    heads = ("PARTITION", "START", "END", "BATCHES", "RECORDS", "SIZE", "MISSING")
    table(heads, rows, right="-rrrrrr", drop=("BATCHES", "START", "SIZE"))
    for each in found["partitions"]:
        name = f"{each['topic']}-{each['partition']}"
        for missing in each["missing"]:
            where = f"{missing['path']}, position {missing['position']}: {missing['reason']}"
            click.echo(wrapped(printable(f"{name}: {_offsets(missing)}: {where}"), "  "))
        if each["error"]:
            click.echo(f"klog: {name} is not rescued: {printable(each['error'])}", err=True)
    for problem in (*found["missing_files"], *found["problems"]):
        click.echo(f"klog: {printable(problem)}", err=True)


def _offsets(missing: dict[str, Any]) -> str:
    first, last = missing["first_offset"], missing["last_offset"]
    if first is None:
        return "no offset is missing"
    return f"offsets {first} and later" if last is None else f"offsets {first} to {last}"
