"""klog cat --dir DIR --topic T"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from klog.cli.completing import topics
from klog.cli.output import (
    counted,
    isolation_option,
    json_list,
    json_option,
    jsonl_option,
    note_recovery,
    parsed_position,
    position,
    printable,
    usage_errors,
)
from klog.cli.record_format import RecordFormat
from klog.shown import iso, moment, to_json

if TYPE_CHECKING:
    from klog.log import Log
    from klog.log.read.isolation import Isolation
    from klog.manager import LogManager
    from klog.record import Record


_ENDS = {"log_end": "log_end_offset", "high_watermark": "high_watermark", "read_committed": "last_stable_offset"}
_KCATS = {"beginning": "earliest", "end": "latest"}


@usage_errors()
def _kcats_offsets(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, int | str]:
    """Return start and stop, those that are given in a form of kcat. A negative start counts from the end."""
    found: dict[str, int | str] = {}
    for text in texts:
        name = "stop" if text.startswith("e@") else "start"
        plain = text.removeprefix("e@").removeprefix("s@")
        if text == "stored":
            raise click.BadParameter("'stored': a named reader stores its position: LogManager.reader in Python")
        if name in found:
            raise click.BadParameter(f"{text!r} is a second {name}: leave out one")
        if plain != text and plain.isascii() and plain.isdigit():
            plain = iso(int(plain))
        if text[:1] == "-" and text[1:].isascii() and text[1:].isdigit():
            found[name] = -int(text[1:]) or "latest"
        else:
            found[name] = parsed_position(_KCATS.get(plain, plain))
    return found


def _format(ctx: click.Context, parameter: click.Parameter, text: str | None) -> RecordFormat | None:
    show = _shown if sys.stdout.isatty() else _stored
    return None if text is None else RecordFormat(text, show)


@click.command("cat")
@click.option("--dir", "directory", metavar="DIR", required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--topic", metavar="T", required=True, shell_complete=topics)
@click.option(
    "--partition", metavar="P", type=click.IntRange(0), help="One partition. Default: all, one after the other."
)
@click.option(
    "--from",
    "--since",
    "start",
    metavar="OFFSET|TIME",
    callback=position,
    help="An offset, earliest, latest, now, a date, ISO text with its zone, or 3d, 10m: so long ago. "
    "Default: earliest; with -f latest.",
)
@click.option(
    "--to",
    "--until",
    "stop",
    metavar="OFFSET|TIME",
    callback=position,
    help="The first offset or time that is left out. Default: none.",
)
@click.option(
    "--offset",
    "offsets",
    metavar="OFFSET",
    multiple=True,
    callback=_kcats_offsets,
    help="Start and end as in kcat: beginning, end, N, -N for N before the end, s@TIME, e@TIME, in ms since 1970.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for new records, until interrupted.")
@click.option("-n", "--max", "limit", metavar="N", type=click.IntRange(0), help="Stop after N records.")
@isolation_option
@click.option("--control", is_flag=True, help="Show control records, too.")
@click.option("--raw", is_flag=True, help="Do not decode the records of Kafka's internal topics.")
@click.option(
    "-o",
    "--output",
    "form",
    metavar="FORMAT",
    callback=_format,
    help="As in kcat: %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %K and %S their lengths, "
    "%h headers, %%; \\n, \\r, \\t, \\0, \\xHH.",
)
@json_option
@jsonl_option
def command(
    directory: str,
    topic: str,
    partition: int | None,
    start: int | str | None,
    stop: int | str | None,
    offsets: dict[str, int | str],
    follow: bool,
    limit: int | None,
    isolation: Isolation,
    control: bool,
    raw: bool,
    form: RecordFormat | None,
    as_json: bool,
    as_jsonl: bool,
) -> None:
    """Print records: partition, offset, time, key and value; with --json and --jsonl every field of a record.

    In JSON, bytes that are not UTF-8 are shown as value_b64 and key_b64 instead of value and key. The directory is
    opened read-only and without its lock, so a writer may use it meanwhile. With -f, --json prints one object a line.
    Records of __consumer_offsets, __transaction_state and other internal topics are decoded: in JSON as "decoded".

    \b
    klog cat --dir data --topic flights --from 2013-02-08T05:00:00Z --max 5
    klog cat --dir data --topic flights -f --jsonl | jq .key
    klog cat --dir data --topic flights --since 3d --until 10m -o '%T %k %s'
    klog cat --dir data --topic flights --offset -5
    """
    import klog

    if form is not None and (as_json or as_jsonl):
        raise click.UsageError("-o is for text: leave out --json and --jsonl, or -o")
    for name, other in (("start", start), ("stop", stop)):
        if name in offsets and other is not None:
            raise click.UsageError(f"--offset names the {name}, too: leave out one")
    start, stop = offsets.get("start", start), offsets.get("stop", stop)
    if follow and stop is not None:
        raise click.UsageError("-f has no end: leave out --to, or -f")
    with klog.open(directory, read_only=True) as logs:
        numbers = _partitions(logs, topic, partition)
        if start is None:
            start = "latest" if follow else "earliest"
        found = [logs.log(topic, number) for number in numbers]
        for log in found if not follow else ():
            note_recovery(log)
            hidden = _hidden(log) if isolation == "high_watermark" else ""
            if hidden:
                click.echo(f"klog: {hidden}: --isolation log_end shows all records", err=True)
        if isinstance(start, int) and all(start > log.log_end_offset for log in found):
            max(found, key=lambda log: log.log_end_offset).check_held(start)
        starts = {log.partition: _start(log, start, isolation, len(numbers) > 1) for log in found}
        if follow:
            tail = logs.tail(topic, starts, partition=partition, isolation=isolation, include_control=control)
            records = _limited(_from_time_to_come(tail, start), limit)
        else:
            records = _limited(_once(found, starts, stop, isolation, control), limit)
        if as_json and not follow:
            with json_list({"directory": directory, "topic": topic}, "records") as item:
                _print(records, lambda record: item(_json(record, raw)), follow)
        elif form is not None:
            _print(records, lambda record: sys.stdout.buffer.write(form(record)), follow)
        elif as_json or as_jsonl:
            _print(records, lambda record: print(_json(record, raw)), follow)
        else:
            _print(records, lambda record: print(_text(record, raw)), follow)


def _hidden(log: Log) -> str:
    """Name the records that are not read by default. Damage among them is no reason to leave out the others."""
    from klog.errors import CorruptData

    try:
        hidden = log.count(log.high_watermark)
    except CorruptData as error:
        return f"{log.name} is damaged above the high watermark, {printable(str(error))}"
    return f"{counted(hidden, 'record')} of {log.name} above the high watermark" if hidden else ""


def _partitions(logs: LogManager, topic: str, partition: int | None) -> list[int]:
    from klog.errors import UnknownTopicOrPartition

    topics = logs.topics()
    if topic not in topics:
        import difflib

        near = difflib.get_close_matches(topic, topics, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "klog ls lists the topics"
        raise UnknownTopicOrPartition(f"no topic {topic!r}; {hint}")
    if partition is None:
        return sorted(topics[topic])
    if partition not in topics[topic]:
        raise UnknownTopicOrPartition(f"topic {topic!r} has no partition {partition}; it has {sorted(topics[topic])}")
    return [partition]


def _start(log: Log, start: int | str, isolation: Isolation, clamp: bool) -> int | str:
    """Return where to begin in a partition. clamp: one offset for many partitions is limited to those of each."""
    if isinstance(start, int) and start < 0:
        return max(int(getattr(log, _ENDS[isolation])) + start, log.log_start_offset)
    return min(max(start, log.log_start_offset), log.log_end_offset) if clamp and isinstance(start, int) else start


def _once(
    logs: list[Log], starts: dict[int, int | str], stop: int | str | None, isolation: Isolation, control: bool
) -> Iterator[Record]:
    for log in logs:
        yield from log.read(starts[log.partition], stop, isolation=isolation, include_control=control)


def _from_time_to_come(records: Iterable[Record], start: int | str) -> Iterator[Record]:
    """The records, which begin at the end of the log if the start is later than now: in each partition from the first
    one that is not before it."""
    from klog.clock import SystemClock
    from klog.log.read.positions import timestamp_ms

    now = SystemClock().wall_ms()
    first = now if isinstance(start, int) or start.lower() in ("earliest", "latest") else timestamp_ms(start, now)
    if first <= now:
        yield from records
        return
    begun = set()
    for record in records:
        if record.partition in begun or record.timestamp >= first:
            begun.add(record.partition)
            yield record


def _limited(records: Iterator[Record], limit: int | None) -> Iterator[Record]:
    if limit is None:
        yield from records
        return
    if limit == 0:
        return
    for count, item in enumerate(records, 1):
        yield item
        if count == limit:
            return


def _print(records: Iterator[Record], show: Callable[[Record], Any], at_once: bool) -> None:
    for record in records:
        show(record)
        if at_once:  # the next one may be long in coming
            sys.stdout.flush()
    sys.stdout.flush()


def _json(record: Record, raw: bool) -> str:
    from klog.inspect.record_fields import record_fields

    origin = {"topic": record.topic, "partition": record.partition}
    return to_json({**origin, **record_fields(record, None if raw else record.topic)})


def _text(record: Record, raw: bool) -> str:
    parts = [f"{record.partition}:{record.offset}", moment(record.timestamp) or "-"]
    decoded = None if raw or record.is_control else _decoded(record)
    if record.is_control:
        parts.append(f"[{record.control_type}]")
    elif decoded is not None:
        parts += decoded
    else:
        parts += [_bytes(record.key), _bytes(record.value)]
        if record.headers:
            parts.append("{" + ", ".join(f"{printable(name)}: {_bytes(value)}" for name, value in record.headers) + "}")
    return "\t".join(parts)


def _decoded(record: Record) -> list[str] | None:
    """Return type, key and value of a record of an internal topic; None for other topics and unknown bytes."""
    from klog.inspect.record_fields import decoded_fields

    found = decoded_fields(record, str(record.topic)).get("decoded")
    if found is None:
        return None
    parts = [found["type"], *(printable(to_json(found[name])) for name in ("key", "value"))]
    return parts if found["key"] is not None else [parts[0], parts[2]]


def _stored(value: bytes | None) -> bytes:
    return value or b""


def _shown(value: bytes | None) -> bytes:
    """For a terminal, whose cursor the bytes may not move."""
    return b"" if value is None else _bytes(value).encode()


def _bytes(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return printable(value.decode())
    except UnicodeDecodeError:
        return f"hex:{value.hex()}"
