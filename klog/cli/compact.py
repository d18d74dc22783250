"""klog compact DIR"""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import click

from klog.cli.completing import topics
from klog.cli.group import DATA_PROBLEM, FAILURE, exit_code
from klog.cli.import_ import _setting
from klog.cli.output import (
    agreed,
    check_question,
    counted,
    json_option,
    on_terminal,
    print_json,
    printable,
    progress_bar,
    progress_option,
    styled,
    table,
    wrapped,
)
from klog.errors import ConfigUnknown, CorruptData, PolicyViolation
from klog.shown import size

if TYPE_CHECKING:
    from klog.cleaner import CompactionStats, PurgeStats, WastedKey
    from klog.manager.by_hand import Outcome

_KEY_WIDTH = 60


def _key(ctx: click.Context, parameter: click.Parameter, text: str | None) -> bytes | None:
    if text is None or not text.startswith("hex:"):
        return None if text is None else text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text[4:])
    except ValueError:
        raise click.BadParameter(f"{text!r}: after hex: come hexadecimal digits, two for each byte") from None


@click.command("compact")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--topic", metavar="T", help="Only this topic.", shell_complete=topics)
@click.option("--dry-run", is_flag=True, help="Change nothing; report what would be saved and which keys waste most.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--purge-key", metavar="KEY", callback=_key, help="Instead, remove every record of this key; hex:6b6579 for bytes."
)
@click.option(
    "--roll/--no-roll",
    default=True,
    help="Close the active segment first, so that the newest records are compacted, too (the default).",
)
@click.option(
    "--top", metavar="N", default=10, show_default=True, type=click.IntRange(0), help="How many wasteful keys to list."
)
@click.option(
    "--config", metavar="K=V", multiple=True, callback=_setting, help="Configuration of the topic, only for this run."
)
@json_option
@progress_option
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    topic: str | None,
    dry_run: bool,
    yes: bool,
    purge_key: bytes | None,
    roll: bool,
    top: int,
    config: dict[str, str],
    as_json: bool,
    progress: bool,
) -> None:
    """Compaction by hand: keeps the latest record of each key. Or, with --purge-key, removes every record of a key.

    DIR is a log.dir or one partition directory. No other process may have it open for writing, except for --dry-run.
    Without --topic, all compacted topics are compacted. A broker's directory does not store which ones are: there, name
    a topic and state its policy with --config. Tombstones stay until delete.retention.ms has passed since a compaction
    first saw them.

    --purge-key is for requests to delete data. It works on topics of any policy, all of DIR or --topic, and writes a
    line to DIR/klog-audit.jsonl with the key's SHA-256, not the key. Note that the shell's history keeps the key.

    What is removed cannot be restored. So klog asks before, on a terminal only: not in a pipe or a script, and not with
    --yes, which --json needs there. A damaged partition is reported with file, position and offset, and left as it is;
    the others go on. Exit code 3.

    \b
    klog compact data --dry-run
    klog compact data --topic flight-status
    klog compact /var/lib/kafka/data --topic users --config cleanup.policy=compact --config delete.retention.ms=0
    klog compact data --purge-key user-4711
    """
    from klog.manager.by_hand import compact_directory, purge_directory

    if purge_key is not None and config:
        raise click.UsageError("--config has no effect with --purge-key: leave it out")
    if config and topic is None:
        raise click.UsageError("--config needs --topic: it applies to one topic")
    if not (dry_run or yes) and on_terminal():
        check_question(as_json)
        if not agreed(_question(directory, topic, purge_key is not None)):
            ctx.exit(FAILURE)
    try:
        with progress_bar(progress) as draw:
            if purge_key is not None:
                found = purge_directory(directory, purge_key, topic=topic, roll=roll, dry_run=dry_run, progress=draw)
            else:
                found = compact_directory(
                    directory, topic=topic, config=config or None, roll=roll, dry_run=dry_run, top=top, progress=draw
                )
    except (ConfigUnknown, PolicyViolation) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json(_document(directory, found, dry_run, purge_key is not None, top))
    elif purge_key is not None:
        _show_purge(found, dry_run)
    else:
        _show(found, dry_run, top)
    sys.stdout.flush()
    _print_errors(found)
    errors = [outcome.error for outcome in found if outcome.error is not None]
    if errors:
        ctx.exit(DATA_PROBLEM if any(isinstance(error, CorruptData) for error in errors) else _worst(errors))


def _question(directory: str, topic: str | None, purge: bool) -> str:
    what = "every record of the key" if purge else "all but the latest record of each key"
    where = printable(directory if topic is None else f"topic {topic} of {directory}")
    return f"Remove {what} from {where}, for good?"


def _worst(errors: list[Any]) -> int:
    codes = {exit_code(error) for error in errors}
    return codes.pop() if len(codes) == 1 else FAILURE


def _print_errors(found: list[Outcome]) -> None:
    for outcome in found:
        if outcome.error is not None:
            click.echo(f"klog: {outcome.topic}-{outcome.partition}: {printable(str(outcome.error))}", err=True)
            for note in getattr(outcome.error, "__notes__", ()):
                click.echo(f"klog: {printable(note)}", err=True)


# ---- compaction ------------------------------------------------------------------------------------------------------


def _show(found: list[Outcome], dry_run: bool, top: int) -> None:
    if not found:
        click.echo("nothing to do: no topic here has a cleanup.policy with compact")
        return
    done: list[tuple[Outcome, CompactionStats]] = [(it, it.stats) for it in found if it.stats is not None]
    table(
        ("TOPIC", "PARTITION", "BEFORE", "AFTER", "SAVED", "%", "RECORDS", "REMOVED", "NO KEY"),
        [
            (
                outcome.topic,
                outcome.partition,
                size(stats.bytes_before),
                size(stats.bytes_after),
                size(stats.bytes_before - stats.bytes_after),
                _percent(stats.bytes_before - stats.bytes_after, stats.bytes_before),
                f"{stats.records_before:,}",
                f"{stats.records_before - stats.records_after:,}",
                f"{stats.keyless:,}",
            )
            for outcome, stats in done
        ],
        right="-rrrrrrrr",
        drop=("%", "NO KEY", "RECORDS", "BEFORE"),
    )
    before, after = sum(stats.bytes_before for _, stats in done), sum(stats.bytes_after for _, stats in done)
    removed = sum(stats.records_before - stats.records_after for _, stats in done)
    seconds = sum(stats.seconds for _, stats in done)
    verb = "would be removed" if dry_run else "removed"
    saved = f"{size(before - after)} of {size(before)} ({_percent(before - after, before)}%)"
    click.echo(wrapped(f"{saved} and {counted(removed, 'record')} {verb}, in {seconds:.1f} s"))
    for outcome, stats in done:
        for held in stats.held:
            text = (
                f"{outcome.topic}-{outcome.partition}: {size(held.bytes)} from offset {held.first_offset} on "
                f"{'would not be' if dry_run else 'were not'} cleaned: {held.reason}"
            )
            click.echo(wrapped(text, "  "))
    wasted = _wasted(found, top)
    if wasted:
        click.echo("")
        table(
            ("KEYS THAT WASTE MOST", "TOPIC", "PARTITION", "RECORDS", "BYTES"),
            [
                (_shown(each.key), outcome.topic, outcome.partition, f"{each.records:,}", size(each.bytes))
                for outcome, each in wasted
            ],
            right="--rrr",
            drop=("PARTITION", "RECORDS"),
        )
        error = max(stats.wasted_error for _, stats in done)
        if error:
            click.echo(wrapped(f"too many keys to count exactly: each of these may waste up to {size(error)} more"))


def _wasted(found: list[Outcome], top: int) -> list[tuple[Outcome, WastedKey]]:
    """The keys of all partitions that waste most, in descending order."""
    every = [(outcome, each) for outcome in found if outcome.stats is not None for each in outcome.stats.wasted]
    return sorted(every, key=lambda pair: -pair[1].bytes)[:top]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "0.0"


def _shown(key: bytes) -> str:
    """A key as text if possible, else in the form that --purge-key accepts; a long one is shortened."""
    if not key:
        return '""'
    try:
        text = key.decode()
        plain = text.isprintable() and text.strip() and text != '""' and not text.startswith("hex:")
        text = printable(text) if plain else f"hex:{key.hex()}"
    except UnicodeDecodeError:
        text = f"hex:{key.hex()}"
    return text if len(text) <= _KEY_WIDTH else f"{text[: _KEY_WIDTH - 1]}…"


# ---- purge -----------------------------------------------------------------------------------------------------------


def _show_purge(found: list[Outcome], dry_run: bool) -> None:
    done: list[tuple[Outcome, PurgeStats]] = [(it, it.stats) for it in found if it.stats is not None]
    held = [(outcome, stats) for outcome, stats in done if stats.records_removed or stats.records_left]
    if held:
        table(
            ("TOPIC", "PARTITION", "REMOVED", "LEFT", "FIRST", "LAST", "SEGMENTS", "SAVED"),
            [
                (
                    outcome.topic,
                    outcome.partition,
                    f"{stats.records_removed:,}",
                    f"{stats.records_left:,}",
                    stats.first_offset if stats.records_removed else None,
                    stats.last_offset if stats.records_removed else None,
                    stats.segments_rewritten,
                    size(stats.bytes_before - stats.bytes_after),
                )
                for outcome, stats in held
            ],
            right="-rrrrrrr",
            drop=("SEGMENTS", "SAVED", "FIRST", "LAST"),
        )
    removed = sum(stats.records_removed for _, stats in done)
    verb = "would be removed" if dry_run else "removed"
    click.echo(f"{counted(removed, 'record')} {verb}, {counted(len(done), 'partition')} searched")
    for outcome, stats in done:
        where = f"{outcome.topic}-{outcome.partition}"
        if stats.records_left:
            left = (
                f"{where}: {counted(stats.records_left, 'record')} of the key left, from offset {stats.left_from} on: "
                "in the active segment, in an open transaction or above the high watermark"
            )
            click.echo(styled(wrapped(left, "  "), fg="yellow"))
        for name in stats.leftovers:
            click.echo(styled(wrapped(f"{where}: {name} could not be removed and may hold the key", "  "), fg="yellow"))


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _document(directory: str, found: list[Outcome], dry_run: bool, purge: bool, top: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "directory": directory,
        "dry_run": dry_run,
        "bytes_before": sum(it.stats.bytes_before for it in found if it.stats is not None),
        "bytes_after": sum(it.stats.bytes_after for it in found if it.stats is not None),
        "partitions": [_partition(outcome) for outcome in found],
    }
    if dry_run and not purge:
        document["wasted"] = [
            {
                "topic": outcome.topic,
                "partition": outcome.partition,
                **_json_key(each.key),
                "records": each.records,
                "bytes": each.bytes,
                "bytes_at_most": each.bytes + outcome.stats.wasted_error,
            }
            for outcome, each in _wasted(found, top)
        ]
    return document


def _partition(outcome: Outcome) -> dict[str, Any]:
    from klog.values import asdict

    entry: dict[str, Any] = {
        "topic": outcome.topic,
        "partition": outcome.partition,
        "path": outcome.path,
        "problem": None,
    }
    if outcome.stats is not None:
        entry |= {name: value for name, value in asdict(outcome.stats).items() if name != "wasted"}
    error = outcome.error
    if error is not None:
        named = ("path", "position", "offset", "kind") if isinstance(error, CorruptData) else ()
        entry["problem"] = {"message": str(error), **{name: getattr(error, name) for name in named}}
    return entry


def _json_key(key: bytes) -> dict[str, str]:
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_b64": base64.b64encode(key).decode()}
