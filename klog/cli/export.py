"""klog export DIR --topic T -o FILE"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from klog.cli.completing import topics
from klog.cli.output import (
    begin_json,
    counted,
    isolation_option,
    json_option,
    note_recovery,
    position,
    print_json,
    progress_bar,
    progress_option,
)
from klog.shown import size, to_json
from klog.values import asdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klog.log.read.isolation import Isolation


def _names(ctx: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


@click.command("export")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--topic", metavar="T", required=True, shell_complete=topics)
@click.option("--partition", metavar="P", type=click.IntRange(0), help="One partition. Default: all.")
@click.option(
    "--from",
    "--since",
    "start",
    metavar="OFFSET|TIME",
    callback=position,
    help="An offset, ISO text with its zone, or 3d, 10m: so long ago.",
)
@click.option(
    "--to",
    "--until",
    "stop",
    metavar="OFFSET|TIME",
    callback=position,
    help="The first that is left out. Default: all.",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    required=True,
    help="NAME.parquet, .arrow, .csv or .jsonl; - is stdout.",
)
@click.option(
    "--format", "form", type=click.Choice(["parquet", "arrow", "csv", "jsonl"]), help="If FILE does not show it."
)
@click.option("--columns", metavar="A,B", callback=_names, help="Which columns, in this order. Default: all.")
@click.option("--decode", type=click.Choice(["utf8", "json", "avro", "protobuf"]), help="The format of the values.")
@click.option("--decode-key", type=click.Choice(["utf8", "json"]), help="The format of the keys.")
@click.option(
    "--schema", metavar="SCHEMA", help="json: DDL, 'id BIGINT, tags ARRAY<STRING>'. avro: reader's. protobuf: message."
)
@click.option(
    "--schemas",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="avro: JSON of schemas by id; default: topic _schemas of DIR. protobuf: a descriptor set of protoc.",
)
@click.option(
    "--on-bad", type=click.Choice(["raise", "null"]), default="raise", show_default=True, help="Of bad values."
)
@isolation_option
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@json_option
@progress_option
def command(
    directory: str,
    topic: str,
    partition: int | None,
    start: int | str | None,
    stop: int | str | None,
    target: str,
    form: str | None,
    columns: list[str] | None,
    decode: str | None,
    decode_key: str | None,
    schema: str | None,
    schemas: str | None,
    on_bad: Literal["raise", "null"],
    isolation: Isolation,
    overwrite: bool,
    as_json: bool,
    progress: bool,
) -> None:
    """Write the records of a topic to a file: Parquet, Arrow, CSV or JSON lines.

    JSON lines are the objects of klog cat --jsonl. In CSV, keys and values that are not UTF-8 are in key_b64 and
    value_b64, and a value that is decoded by a schema is one column for each field. FILE appears when it is complete.
    The directory is opened read-only. With -o - the summary is on stderr.

    \b
    klog export data --topic flights --from 2013-02-08T05:00:00Z -o flights.parquet
    klog export data --topic flights --decode json --schema 'carrier STRING, dep_delay DOUBLE' -o flights.csv
    """
    import klog
    from klog.exporting import export_file

    if target == "-":
        begin_json()  # stdout has records: an error is not written between them
    with _errors_of_options(), klog.open(directory, read_only=True) as logs, progress_bar(progress) as draw:
        formats = {"key": decode_key, "value": _format(logs, decode, schema, schemas)}
        result = export_file(
            logs,
            topic,
            target,
            partition=partition,
            start=start,
            stop=stop,
            isolation=isolation,
            form=form,
            columns=columns,
            decode={column: each for column, each in formats.items() if each is not None} or None,
            on_bad=on_bad,
            overwrite=overwrite,
            progress=draw,
            stdout=sys.stdout.buffer if target == "-" else None,
        )
        for number in sorted(result.partitions):
            note_recovery(logs.log(topic, number))
    spans = [
        {"partition": number, "first_offset": first, "next_offset": following}
        for number, (first, following) in sorted(result.partitions.items())
    ]
    summary = {"directory": directory, **asdict(result), "partitions": spans}
    if target == "-":
        click.echo(to_json(summary) if as_json else f"klog: {counted(result.records, 'record')}", err=True)
    elif as_json:
        print_json(summary)
    else:
        click.echo(f"{counted(result.records, 'record')} of {topic} into {target}, {size(result.bytes)}")


@contextmanager
def _errors_of_options() -> Iterator[None]:
    """Name the options in the errors of the arguments and of the formats."""
    from klog.errors import BadValue, KlogError

    try:
        yield
    except BadValue as error:
        option = "--decode-key" if error.column == "key" else "--decode"
        hint = f"Correct {option} or the producer; or pass --on-bad null, which writes null there."
        raise BadValue(error.partition, error.offset, error.column, error.reason, hint) from None
    except FileExistsError as error:
        raise FileExistsError(
            error.errno, "the file exists; name another, or pass --overwrite", error.filename
        ) from None
    except (ValueError, ImportError) as error:
        if isinstance(error, KlogError | click.ClickException):
            raise
        raise click.UsageError(str(error)) from None


def _format(logs: Any, decode: str | None, schema: str | None, schemas: str | None) -> Any:
    """The format of the values. Raises ValueError."""
    from klog.decode import TOPIC, Avro, Json, Protobuf, from_file, from_records

    if decode in (None, "utf8") and (schema or schemas):
        raise ValueError("--schema and --schemas are for --decode json, avro and protobuf")
    if decode == "json" and schemas:
        raise ValueError("--schemas is for --decode avro and protobuf; --schema is that of JSON")
    if decode == "json":
        return Json(schema)
    if decode == "protobuf":
        if not schema or not schemas:
            raise ValueError("--decode protobuf needs --schema, a message's full name, and --schemas, a descriptor set")
        with open(schemas, "rb") as file:
            return Protobuf(schema, file.read())
    if decode == "avro":
        if schemas:
            with open(schemas, encoding="utf-8") as file:
                return Avro(from_file(file.read(), schemas), schema)
        if TOPIC not in logs.topics():
            raise ValueError(f"--decode avro needs --schemas FILE: there is no topic {TOPIC} in the directory")
        return Avro(from_records(logs.read(TOPIC).pairs(), TOPIC), schema)
    return decode
