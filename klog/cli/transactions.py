"""klog transactions DIR..."""

from __future__ import annotations

from typing import Any

import click

from klog.cli.group import FAILURE
from klog.cli.output import json_option, note_dropped, print_json, printable, table
from klog.shown import moment


@click.command("transactions")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@json_option
@click.pass_context
def command(ctx: click.Context, directories: tuple[str, ...], as_json: bool) -> None:
    """List transactional ids with their state, and the open transactions of each partition.

    DIR is a log.dir of a stopped or running broker; name all of the broker's. Nothing is changed. An open transaction
    holds back read_committed consumers of its partition: HELD BACK is the number of offsets from its first one to the
    log end. AGE is by this machine's clock. If something could not be read, the exit code is 1.

    \b
    klog transactions /var/lib/kafka/data
    klog transactions disk1 disk2 --json | jq '.open[].age_ms'
    """
    from klog.inspect import transactions

    found = transactions(directories)
    if as_json:
        print_json(found)
    else:
        _print(found)
    for problem in found["problems"]:
        click.echo(f"klog: {printable(problem)}", err=True)
    if found["problems"]:
        ctx.exit(FAILURE)


def _print(found: dict[str, Any]) -> None:
    dropped: dict[str, None] = {}
    if found["transactions"]:
        rows: list[tuple[Any, ...]] = [
            (
                each["transactional_id"],
                each["producer_id"],
                each["producer_epoch"],
                each["state"],
                each["timeout_ms"],
                moment(each["start_timestamp"]),
                ", ".join(f"{topic}-{number}" for topic, number in each["partitions"]),
            )
            for each in found["transactions"]
        ]
        heads = ("TRANSACTIONAL ID", "PRODUCER", "EPOCH", "STATE", "TIMEOUT MS", "START", "PARTITIONS")
        drop = ("TIMEOUT MS", "EPOCH", "PRODUCER", "START")
        table(heads, rows, right="-rrlrl-", drop=drop, dropped=dropped)
    if found["open"]:
        click.echo("\nOpen in partitions" if found["transactions"] else "Open in partitions")
        rows = [
            (
                f"{each['topic']}-{each['partition']}",
                each["transactional_id"],
                each["producer_id"],
                each["first_offset"],
                moment(each["start_timestamp"]),
                _age(each["age_ms"]),
                each["last_stable_offset"],
                each["held_back"],
            )
            for each in found["open"]
        ]
        columns = ("PARTITION", "TRANSACTIONAL ID", "PRODUCER", "FIRST", "START", "AGE", "LAST STABLE", "HELD BACK")
        drop = ("START", "LAST STABLE", "PRODUCER", "FIRST")
        table(columns, rows, right="--rrlrrr", drop=drop, dropped=dropped)
    note_dropped(dropped)
    if not found["transactions"] and not found["open"]:
        click.echo("klog: no transactions here", err=True)


def _age(ms: int | None) -> str | None:
    if ms is None:
        return None
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours}:{minutes:02}:{seconds:02}"
