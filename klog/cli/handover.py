"""klog handover DIR"""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.output import (
    counted,
    json_option,
    print_json,
    printable,
    progress_bar,
    progress_option,
    table,
    usage_errors,
)


@click.command("handover")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--adopt", is_flag=True, help="The reverse: topics of a stopped broker's DIR, for klog.")
@click.option("--dry-run", is_flag=True, help="Only report; change nothing.")
@click.option("--cluster-id", metavar="ID", help="22 characters; default: the present one, or a new one.")
@click.option("--node-id", type=click.IntRange(min=0), default=1, show_default=True, help="Id of the broker.")
@click.option(
    "--controller-listener", metavar="HOST:PORT", default="127.0.0.1:9093", show_default=True, help="For KRaft."
)
@click.option(
    "--listener",
    "listeners",
    metavar="HOST:PORT",
    multiple=True,
    default=("127.0.0.1:9092",),
    show_default=True,
    help="For clients; or SSL://HOST:PORT and the like.",
)
@click.option("--kafka-version", metavar="N.N", default="4.1", show_default=True, help="Release of the broker.")
@click.option(
    "--properties",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="server.properties to write, - to print it; default: DIR.server.properties.",
)
@click.option("--config", metavar="K=V", multiple=True, help="A further entry of server.properties.")
@json_option
@progress_option
@click.pass_context
def command(
    ctx: click.Context,
    directories: tuple[str, ...],
    adopt: bool,
    dry_run: bool,
    cluster_id: str | None,
    node_id: int,
    controller_listener: str,
    listeners: tuple[str, ...],
    kafka_version: str,
    properties: str | None,
    config: tuple[str, ...],
    as_json: bool,
    progress: bool,
) -> None:
    """Make DIR a log.dir that a stock Kafka starts on, with all topics, groups and offsets; or take one over.

    DIR was closed by klog, and no broker has run on it. Give all log.dirs of the broker; the first gets the metadata.
    Writes meta.properties, bootstrap.checkpoint and a server.properties, and prints the command that starts the
    broker. No log is touched, and klog can still open DIR; if it changes topics, hand over again. With --adopt, DIR is
    that of a stopped broker, whose topics and their configurations are written into klog-topics.json.

    \b
    klog handover data
    klog handover data --kafka-version 4.3 --dry-run --json | jq '.topics'
    klog handover --adopt /var/lib/kafka/data
    """
    if adopt:
        from klog.handover import adopt as run_adopt

        _refuse_options(ctx)
        with usage_errors():
            found = run_adopt(list(directories), dry_run=dry_run)
        print_json(found) if as_json else _print_adopted(found)
        return
    from klog.handover import handover

    with usage_errors(), progress_bar(progress) as draw:
        found = handover(
            list(directories),
            cluster_id=cluster_id,
            node_id=node_id,
            controller_listener=controller_listener,
            listeners=listeners,
            kafka_version=kafka_version,
            properties_out=properties,
            config=dict(_setting(each) for each in config),
            dry_run=dry_run,
            progress=draw,
        )
    print_json(found) if as_json else _print(found)
    sys.stdout.flush()


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--config {text}: K=V expected.")
    return key.strip(), value


def _refuse_options(ctx: click.Context) -> None:
    """Raise UsageError for an option of a handover beside --adopt."""
    kept = {"directories", "adopt", "dry_run", "as_json", "progress"}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in kept and ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"{parameter.opts[0]} is for a handover, not for --adopt.", ctx)


def _topics(found: dict[str, Any], *more: str) -> None:
    if found["topics"]:
        rows = [
            (
                each["topic"],
                each["topic_id"],
                each["partitions"],
                *(each[name] for name in more),
                ", ".join(f"{key}={value}" for key, value in each["config"].items()) or "-",
            )
            for each in found["topics"]
        ]
        right = "-lr" + "-" * len(more) + "l"
        heads = ("TOPIC", "ID", "PARTITIONS", *(name.upper() for name in more), "CONFIG")
        table(heads, rows, right=right, drop=("ID", "CONFIG"))


def _warn(found: dict[str, Any]) -> None:
    for warning in found["warnings"]:
        click.echo(f"klog: {printable(warning)}", err=True)


def _print(found: dict[str, Any]) -> None:
    printed = found["server_properties"] is None  # then nothing else is on stdout
    if printed:
        click.echo(found["properties"], nl=False)
    else:
        _topics(found)
    _warn(found)
    verb = "would write" if found["dry_run"] else "wrote"
    topics = counted(len(found["topics"]), "topic")
    lines = [f"{verb} {printable(path)}" for path in found["changed"]]
    lines = lines or ["nothing has changed since the last handover"]
    lines.append(f"cluster {found['cluster_id']}, node {found['node_id']}, Kafka {found['kafka_version']}, {topics}")
    lines.append(f"{'then' if found['dry_run'] else 'start it'}: {printable(found['command'])}")
    for line in lines:
        click.echo(line, err=printed)


def _print_adopted(found: dict[str, Any]) -> None:
    _topics(found, "change")
    for name in found["removed"]:
        click.echo(f"{printable(name)} is gone: the broker has deleted it")
    _warn(found)
    done = (
        "nothing to change" if not found["changed"] else "dry run" if found["dry_run"] else "klog-topics.json written"
    )
    click.echo(f"{done}; {counted(len(found['topics']), 'topic')}, next producer id {found['next_producer_id']}")
