"""klog groups DIR..."""

from __future__ import annotations

from typing import Any

import click

from klog.cli.group import FAILURE
from klog.cli.output import counted, json_option, note_dropped, print_json, printable, styled, table, wrapped
from klog.errors import GroupIdNotFound
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
    the groups. With --group of a group that is not there, or if something could not be read, the exit code is 1.

    \b
    klog groups /var/lib/kafka/data
    klog groups disk1 disk2 --group billing --json | jq '.groups[].offsets[].lag'
    """
    from klog.inspect import groups

    found = groups(directories, group)
    problems = [*found["problems"], *filter(None, (each["problem"] for each in found["readers"]))]
    for problem in problems:
        click.echo(f"klog: {printable(problem)}", err=True)
    if group is not None and not found["groups"]:
        raise GroupIdNotFound(f"no group {group!r}; klog groups without --group lists them")
    if as_json:
        print_json(found)
    else:
        _print(found)
    if problems:
        ctx.exit(FAILURE)


def _print(found: dict[str, Any]) -> None:
    dropped: dict[str, None] = {}
    for number, entry in enumerate(found["groups"]):
        if number:
            click.echo()
        of = f" ({entry['protocol_type']})" if entry["type"] == "classic" and entry["protocol_type"] else ""
        members = counted(len(entry["members"]), "member")
        head = f"{entry['type']}{of}, {entry['state']}, generation {entry['generation']}, {members}"
        click.echo(wrapped(f"{styled(printable(entry['group']), bold=True)}: {head}"))
        if entry["members"]:
            rows = [
                (each["member_id"], each["client_id"], each["client_host"], _partitions(each["assignment"]))
                for each in entry["members"]
            ]
            table(("MEMBER", "CLIENT", "HOST", "ASSIGNMENT"), rows, drop=("HOST", "CLIENT"), dropped=dropped)
        _print_offsets(entry, dropped)
    if found["readers"]:
        click.echo("\nNamed readers of klog" if found["groups"] else "Named readers of klog")
        rows = [
            tuple(each.get(name) for name in ("reader", "topic", "partition", "offset", "log_end_offset", "lag"))
            for each in found["readers"]
        ]
        heads = ("READER", "TOPIC", "PARTITION", "POSITION", "LOG END", "LAG")
        table(heads, rows, right="--rrrr", drop=("LOG END", "POSITION"), dropped=dropped)
    note_dropped(dropped)
    if not found["groups"] and not found["readers"]:
        click.echo("klog: no groups here", err=True)


def _print_offsets(entry: dict[str, Any], dropped: dict[str, None]) -> None:
    rows: list[tuple[Any, ...]] = [
        (*_offset(each), moment(each["expire_timestamp"]), "expired" if each["expired"] else None)
        for each in entry["offsets"]
    ]
    rows += [(*_offset(each), None, f"pending, producer {each['producer_id']}") for each in entry["pending"]]
    if not rows:
        return
    heads = ["TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG", "AT", "EXPIRES", "NOTE"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    table(heads, rows, right="-rrrrlll"[: len(heads)], drop=("EXPIRES", "AT", "LOG END", "COMMITTED"), dropped=dropped)


def _offset(each: dict[str, Any]) -> tuple[Any, ...]:
    values = (each[name] for name in ("topic", "partition", "offset", "log_end_offset", "lag"))
    return (*values, moment(each["commit_timestamp"]))


def _partitions(assignment: list[list[Any]] | None) -> str:
    return "-" if assignment is None else ", ".join(f"{topic}-{number}" for topic, number in assignment)
