"""klog ls DIR"""

from __future__ import annotations

import click

from klog.cli.output import json_option, moment, print_json, size, table


@click.command("ls")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@json_option
def command(directory: str, as_json: bool) -> None:
    """Topics, partitions, offsets, sizes, segments and time span of a log directory.

    DIR is a log.dir (of klog or of a broker, running or dead) or one partition directory. Nothing in it is changed.

    \b
    klog ls data
    klog ls data --json | jq '.topics[].topic'
    """
    from klog.inspect import ls

    found = ls(directory)
    if as_json:
        print_json(found)
        return
    rows = [
        (
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
        for topic in found["topics"]
        for entry in topic["partitions"]
    ]
    heads = ("TOPIC", "PARTITION", "START", "END", "HIGH WATERMARK", "SIZE", "SEGMENTS", "FROM", "TO")
    table(heads, rows, right="-rrrrrr--")
    for topic in found["topics"]:
        for entry in topic["partitions"]:
            if entry["problem"]:
                click.echo(f"klog: {entry['path']}: {entry['problem']}", err=True)
    for other in found["other"]:
        click.echo(f"klog: {other['path']}: {other['state']}", err=True)
