"""klog ls DIR..."""

from __future__ import annotations

from typing import Any

import click

from klog.cli.output import json_option, moment, print_json, size, table


@click.command("ls")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@json_option
def command(directories: tuple[str, ...], as_json: bool) -> None:
    """Topics, partitions, offsets, sizes, segments and time span of log directories.

    DIR is a log.dir (of klog or of a broker, running or dead) or one partition directory. Nothing in it is changed.
    What is on its way (deleted, moved, stray) is told on stderr. The JSON of several directories is
    {"directories": [...]}, of each what a single one gives.

    \b
    klog ls data
    klog ls disk1/data disk2/data
    klog ls data --json | jq '.topics[].topic'
    """
    from klog.inspect import ls

    found = [ls(directory) for directory in directories]
    if as_json:
        print_json(found[0] if len(found) == 1 else {"directories": found})
        return
    several = len(found) > 1
    rows = [
        (*((each["path"],) if several else ()), *_row(topic, entry))
        for each in found
        for topic in each["topics"]
        for entry in topic["partitions"]
    ]
    heads = ("TOPIC", "PARTITION", "START", "END", "HIGH WATERMARK", "SIZE", "SEGMENTS", "FROM", "TO")
    table(("DIR", *heads) if several else heads, rows, right="--rrrrrr--" if several else "-rrrrrr--")
    for each in found:
        for topic in each["topics"]:
            for entry in topic["partitions"]:
                if entry["problem"]:
                    click.echo(f"klog: {entry['path']}: {entry['problem']}", err=True)
        for other in each["other"]:
            click.echo(f"klog: {other['path']}: {other['state']}", err=True)


def _row(topic: dict[str, Any], entry: dict[str, Any]) -> tuple[Any, ...]:
    return (
        topic["topic"],
        entry["partition"],
        entry["log_start_offset"],
        entry["log_end_offset"],
        entry["high_watermark"],
        size(entry["size"]),
        entry["segments"],
        moment(entry["min_timestamp"]),
        moment(entry["max_timestamp"]),
    )
