"""klog import FILE"""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.completing import topics
from klog.cli.output import counted, json_option, os_error, print_json, progress_bar, progress_option, usage_errors
from klog.shown import moment
from klog.values import asdict


def _setting(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE, as in retention.ms=-1")
        settings[name.strip()] = value.strip()
    return settings


def compression_of(text: str | None) -> Any:
    """Parse lz4, none, or zstd:19 with a level."""
    if text is None or ":" not in text:
        return text
    name, _, level = text.partition(":")
    try:
        return name, int(level)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: the level must be a number, as in zstd:19", param_hint="--compression"
        ) from None


@click.command("import")
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@click.option("--dir", "directory", metavar="DIR", required=True, help="Log directory; created if it does not exist.")
@click.option("--topic", metavar="T", required=True, help="Topic; created if it does not exist.", shell_complete=topics)
@click.option("--key", metavar="COL", help="Column whose text becomes the key; an empty cell gives a null key.")
@click.option(
    "--timestamp", metavar="COL", help="Column of times: ISO text (UTC unless it states a zone) or milliseconds."
)
@click.option("--partitions", metavar="N", type=click.IntRange(1), help="Partitions of a new topic. Default: 1.")
@click.option("--compression", metavar="C", help="none, gzip, snappy, lz4 or zstd; with a level: zstd:19.")
@click.option(
    "--config",
    metavar="K=V",
    multiple=True,
    callback=_setting,
    help="Configuration of a new topic, such as segment.bytes=16777216.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "tsv", "jsonl", "parquet"]),
    help="Needed if name and content do not show it.",
)
@json_option
@progress_option
def command(
    file: str,
    directory: str,
    topic: str,
    key: str | None,
    timestamp: str | None,
    partitions: int | None,
    compression: str | None,
    config: dict[str, str],
    form: str | None,
    as_json: bool,
    progress: bool,
) -> None:
    """Load CSV, JSON lines or Parquet into a topic; also .gz, and - for standard input.

    A record's value is its row as a JSON object, with the columns in file order. The whole file is read and checked
    before anything is written: an invalid row is reported with file and line, and the topic stays as it was. A new
    topic keeps its records for ever (retention.ms=-1), unless --config sets another value.

    \b
    klog import flights.csv.gz --dir data --topic flights --key tailnum --timestamp time_hour
    zcat events.jsonl.gz | klog import - --dir data --topic events --partitions 4 --compression zstd
    """
    from klog.importing import import_file

    try:
        with usage_errors(), progress_bar(progress) as draw:
            result = import_file(
                file,
                directory,
                topic,
                key=key,
                timestamp=timestamp,
                partitions=partitions,
                compression=compression_of(compression),
                config=config,
                form=form,
                progress=draw,
                stdin=sys.stdin.buffer if file == "-" else None,
            )
    except FileNotFoundError as error:
        if error.filename != file:
            raise
        raise click.UsageError(os_error(error)) from None
    if as_json:
        spans = [
            {"partition": number, "first_offset": first, "next_offset": following}
            for number, (first, following) in sorted(result.partitions.items())
        ]
        print_json({"directory": directory, **asdict(result), "partitions": spans})
        return
    span = ""
    if result.min_timestamp is not None:
        span = f", {moment(result.min_timestamp)} to {moment(result.max_timestamp)}"
    made = "new topic" if result.created else "topic"
    click.echo(f"{counted(result.records, 'record')} into {made} {topic} in {directory}{span}")
    for number, (first, following) in sorted(result.partitions.items()):
        click.echo(f"  partition {number}: offsets {first} to {following}")
    if result.null_keys and key is not None:
        click.echo(f"klog: {result.null_keys:,} rows have no {key}: their key is null", err=True)
    if result.max_timestamp is not None and result.max_timestamp < 86_400_000_000:
        click.echo("klog: all times are before October 1972; note that numbers are read as milliseconds", err=True)
