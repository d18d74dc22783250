"""klog groups DIR..."""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.group import FAILURE
from klog.cli.output import counted, json_option, print_json, printable, styled, table
from klog.shown import moment


@click.command("groups")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--group", metavar="G", help="Only this group.")
@json_option
@click.pass_context
def command(ctx: click.Context, directories: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """List consumer groups with members, committed offsets and lag, from the files of a stopped or running broker.

    DIR is a log.dir; name all of the broker's. Nothing is changed. The log end is that of these files, and - if the
    partition is in none of them. Offsets of an open transaction are listed as pending. Named readers of klog follow
    the groups. With --group of a group that is not there, the exit code is 1.

    \b
    klog groups /var/lib/kafka/data
    klog groups disk1 disk2 --group billing --json | jq '.groups[].offsets[].lag'
    """
    from klog.inspect import groups

    found = groups(directories, group)
    if as_json:
        print_json(found)
    else:
        _print(found)
    for problem in found["problems"]:
        click.echo(f"klog: {printable(problem)}", err=True)
    if group is not None and not found["groups"]:
        sys.stdout.flush()
        click.echo(f"klog: no group {group!r}; klog groups without --group lists them", err=True)
        ctx.exit(FAILURE)


def _print(found: dict[str, Any]) -> None:
    for number, entry in enumerate(found["groups"]):
        if number:
            click.echo()
        of = f" ({entry['protocol_type']})" if entry["type"] == "classic" and entry["protocol_type"] else ""
        members = counted(len(entry["members"]), "member")
        head = f"{entry['type']}{of}, {entry['state']}, generation {entry['generation']}, {members}"
        click.echo(f"{styled(printable(entry['group']), bold=True)}: {head}")
        if entry["members"]:
            rows = [
                (each["member_id"], each["client_id"], each["client_host"], _partitions(each["assignment"]))
                for each in entry["members"]
            ]
            table(("MEMBER", "CLIENT", "HOST", "ASSIGNMENT"), rows)
        offsets = [_offset(each, "") for each in entry["offsets"]]
        offsets += [_offset(each, f"pending, producer {each['producer_id']}") for each in entry["pending"]]
        if offsets:
            table(("TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG", "AT", "NOTE"), offsets, right="-rrrr--")
    if found["readers"]:
        click.echo("\nNamed readers of klog" if found["groups"] else "Named readers of klog")
        rows = [
            tuple(each.get(name) for name in ("reader", "topic", "partition", "offset", "log_end_offset", "lag"))
            for each in found["readers"]
        ]
        table(("READER", "TOPIC", "PARTITION", "POSITION", "LOG END", "LAG"), rows, right="--rrrr")
        for each in found["readers"]:
            if each["problem"]:
                click.echo(f"klog: {printable(each['problem'])}", err=True)
    if not found["groups"] and not found["readers"]:
        click.echo("klog: no groups here", err=True)


def _offset(each: dict[str, Any], note: str) -> tuple[Any, ...]:
    if not note and each["expire_timestamp"] >= 0:
        note = f"{'expired' if each['expired'] else 'expires'} {moment(each['expire_timestamp'])}"
    values = (each[name] for name in ("topic", "partition", "offset", "log_end_offset", "lag"))
    return (*values, moment(each["commit_timestamp"]), note)


def _partitions(assignment: list[list[Any]] | None) -> str:
    return "-" if assignment is None else ", ".join(f"{topic}-{number}" for topic, number in assignment)
