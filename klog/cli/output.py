"""What verbs share: options, JSON, tables, progress. At start it imports only click.

--json prints one object; verbs that print many items also have --jsonl, one object a line. Otherwise the output is text
for people. Colour only on a terminal and without NO_COLOR; progress only if stderr is a terminal.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from klog.cli.streams import json_text
from klog.errors import KlogError
from klog.progress import Event, Progress
from klog.shown import size, to_json
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.log import Log

F = TypeVar("F", bound=Callable[..., Any])
TEXT_MAX, TEXT_MIN = 32, 8  # characters of a text column that a narrow terminal keeps, before and after columns go


@dataclass(slots=True)
class Printed:
    """What a call of `klog` has printed. began_json: JSON, so that an error may not print another object."""

    began_json: bool = False


def begin_json() -> None:
    """Note that JSON is printed from here on."""
    context = click.get_current_context(silent=True)
    printed = context.find_object(Printed) if context is not None else None
    if printed is not None:
        printed.began_json = True


def error_fields(error: BaseException) -> dict[str, Any]:
    """Return an error as it is printed with --json. path, position and offset are null where they do not apply."""
    path = getattr(error, "path", None)
    if isinstance(error, click.ClickException):
        message = error.format_message()
    elif isinstance(error, OSError) and not isinstance(error, KlogError):
        message, path = os_error(error), error.filename
    else:
        message = ("" if isinstance(error, SystemExit) else str(error)) or "interrupted"
    return {
        "type": type(error).__name__,
        "message": message,
        "path": os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else None,
        "position": getattr(error, "position", None),
        "offset": getattr(error, "offset", None),
    }


def os_error(error: OSError) -> str:
    """Return the text of an OSError: the path and the kernel's reason."""
    text = error.strerror or str(error)
    return text if error.filename is None else f"{os.fsdecode(error.filename)}: {text}"


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise click.UsageError for a ValueError of a library call: an argument of the command line is wrong. Subclasses,
    such as the errors of klog, have exit codes of their own."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from None


class Seconds(click.FloatRange):
    """The type of an option that is a time: a number, not nan or inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return found


def json_option(function: F) -> F:
    """--json"""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object.")(function)


def jsonl_option(function: F) -> F:
    """--jsonl"""
    return click.option("--jsonl", "as_jsonl", is_flag=True, help="One JSON object a line.")(function)


def progress_option(function: F) -> F:
    """--no-progress"""
    return click.option(
        "--progress/--no-progress", "progress", default=True, help="Show progress on stderr, if it is a terminal."
    )(function)


def isolation_option(function: F) -> F:
    """--isolation, with the default of Log.read."""
    return click.option(
        "--isolation",
        type=click.Choice(["log_end", "high_watermark", "read_committed"]),
        default="high_watermark",
        show_default=True,
        help="Read to the log end, to the high watermark, or only committed transactions.",
    )(function)


def position(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | str | None:
    """The callback of an option that is an offset or a time. Raises click.BadParameter."""
    return None if text is None else parsed_position(text)


def parsed_position(text: str) -> int | str:
    """Return an offset, or text that Log.read accepts: 3d is 3 days ago, as -3d is. Raises click.BadParameter."""
    from klog.arguments import whole
    from klog.log.read.positions import timestamp_ms

    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?(ms|s|m|h|d|w)", text, re.ASCII):
        text = f"-{text}"
    try:
        if text.isascii() and text.isdigit():
            return whole("offset", int(text))
        if text.lower() not in ("earliest", "latest"):
            timestamp_ms(text, 0)
    except ValueError as error:
        raise click.BadParameter(str(error).removeprefix("start=")) from None
    return text


def print_json(value: Any) -> None:
    """Print one object; indented on a terminal."""
    begin_json()
    click.echo(json_text(value))


@contextmanager
def json_list(head: dict[str, Any], name: str) -> Iterator[Callable[[str], None]]:
    """Print one object {**head, name: [...]} as its items come, so that a long list needs no memory.

    Yields a function that takes the JSON text of one item. An error ends the object, too: it is still valid JSON, and
    its last member `error` is the object of error_fields().
    """
    begin_json()
    write = sys.stdout.write
    opening = to_json(head)[:-1] + ("," if head else "")
    write(f"{opening}{to_json(name)}:[")
    first = True

    def item(text: str) -> None:
        nonlocal first
        write("\n" if first else ",\n")
        write(text)
        first = False

    problem = ""
    try:
        yield item
    except (KlogError, OSError, KeyboardInterrupt, SystemExit) as error:
        problem = f',"error":{to_json(error_fields(error))}'
        raise
    finally:
        write(f"]{problem}}}\n" if first else f"\n]{problem}}}\n")


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: str = "",
    drop: Sequence[str] = (),
    dropped: dict[str, None] | None = None,
) -> None:
    """Print aligned columns, on a terminal at most as wide as it is; in a pipe each has its full width.

    right: one character for each column: "r" for numbers, "l" for text that is never shortened, such as times, anything
    else for other text. drop: headers of the columns that a narrow terminal can do without, the first to go first. A
    line on stderr names those that were dropped; or they are added to `dropped`, of a caller with several tables that
    calls note_dropped() after them. If what is left is still too wide, the terminal wraps the lines.
    """
    texts = [[printable(str(cell)) if cell is not None else "-" for cell in row] for row in rows]
    whole = [list(headers), *texts]
    if sys.stdout.isatty():
        whole, right, gone = fitted(whole, right, drop, shutil.get_terminal_size().columns)
    else:
        gone = []
    widths = _widths(whole)

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    click.echo(styled(line(whole[0]), bold=True))
    for row in whole[1:]:
        click.echo(line(row))
    if dropped is None:
        note_dropped(gone)
    else:
        dropped.update(dict.fromkeys(gone))


def note_recovery(log: Log) -> None:
    """Write a line to stderr if a reader has found invalid bytes at a log's end, after a crash, or that records are
    missing there."""
    if log.recovery.reason:
        click.echo(f"klog: {printable(log.recovery.reason)}", err=True)


def note_dropped(headers: Iterable[str]) -> None:
    """Name the columns that were dropped, if there are any, on stderr."""
    named = ", ".join(filter(None, headers))
    if named:
        sys.stdout.flush()
        click.echo(f"klog: not shown for lack of width: {named}; --json has all", err=True)


def wrapped(text: str, indent: str = "", used: int = 0) -> str:
    """Return a sentence in lines that fit the terminal, the first after `used` columns, the others after `indent`; in a
    pipe, as one line. No word is cut: paths remain whole."""
    if not sys.stdout.isatty():
        return text
    import textwrap

    width = shutil.get_terminal_size().columns
    filled = " " * used + text
    lines = textwrap.wrap(filled, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)[used:]


def fitted(
    lines: list[list[str]], right: str, drop: Sequence[str], width: int
) -> tuple[list[list[str]], str, list[str]]:
    """Return a table that is at most `width` wide if possible, its `right`, and the headers that were dropped.

    Long text is shortened to TEXT_MAX first, then columns are dropped, then text is shortened to TEXT_MIN.
    """
    right = right.ljust(len(lines[0]), "-")
    lines = _shortened(lines, right, width, TEXT_MAX)
    dropped: list[str] = []
    for header in drop:
        if _width(lines) <= width:
            break
        at = lines[0].index(header)
        lines = [[*line[:at], *line[at + 1 :]] for line in lines]
        right = right[:at] + right[at + 1 :]
        dropped.append(header)
    return _shortened(lines, right, width, TEXT_MIN), right, dropped


def _shortened(lines: list[list[str]], right: str, width: int, least: int) -> list[list[str]]:
    """Shorten the text columns, the widest first, as far as necessary, but none below `least` or its header."""
    widths = _widths(lines)
    while (excess := sum(widths) + 2 * (len(widths) - 1) - width) > 0:
        spare = [
            (have - max(least, len(head)) if kind not in "rl" else 0)
            for have, head, kind in zip(widths, lines[0], right, strict=True)
        ]
        if not any(more > 0 for more in spare):
            break
        at = max(range(len(widths)), key=lambda i: (spare[i] > 0, widths[i]))
        widths[at] -= min(spare[at], excess)
    return [[_cut(cell, most) for cell, most in zip(line, widths, strict=True)] for line in lines]


def _cut(text: str, most: int) -> str:
    """Return the two ends of a long text: paths and topics differ at either of them."""
    if len(text) <= most:
        return text
    left = (most - 1) // 2
    return f"{text[:left]}…{text[len(text) - (most - 1 - left) :]}"


def _widths(lines: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _width(lines: list[list[str]]) -> int:
    return sum(_widths(lines)) + 2 * (len(lines[0]) - 1)


def styled(text: str, **style: Any) -> str:
    """Return text with colour or weight, if stdout is a terminal and NO_COLOR is not set."""
    return click.style(text, **style) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def printable(text: str) -> str:
    """Return text that cannot move the cursor: control characters and lone surrogates become escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number and its noun: `1 batch`, `1,024 batches`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def on_terminal() -> bool:
    """Return whether a question can be asked and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def check_question(as_json: bool) -> None:
    """Raise click.UsageError where agreed() must not ask: a script would wait for ever, or be refused."""
    if as_json or not on_terminal():
        why = "--json asks nothing" if as_json else "there is no terminal to ask on"
        raise click.UsageError(f"{why}: add --yes, or --dry-run to see what would be changed.")


def agreed(question: str) -> bool:
    """Ask before something is changed, and return the answer; a refusal is reported."""
    if click.confirm(question, err=True):
        return True
    click.echo("klog: nothing was changed; --dry-run shows what would be", err=True)
    return False


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Progress | None]:
    """Yield a callback for library functions that draws on stderr; None if stderr is not a terminal.

    rich draws bar, rate and time left (extra [terminal]); without it one line is rewritten now and then.
    """
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    try:
        import rich.progress as shown
        from rich.console import Console
    except ImportError:
        plain = _PlainProgress()
        yield plain
        plain.end()
        return
    columns = (
        shown.TextColumn("{task.description}"),
        shown.BarColumn(),
        shown.TaskProgressColumn(),
        shown.TextColumn("{task.fields[amount]}"),
        shown.TimeElapsedColumn(),
        shown.TextColumn("left"),
        shown.TimeRemainingColumn(),
        shown.TextColumn("{task.fields[note]}"),
    )
    with shown.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def draw(event: Event) -> None:
            if event.stage not in tasks:
                tasks[event.stage] = bar.add_task(event.stage, total=event.total, amount="", note="")
            task = tasks[event.stage]
            elapsed = bar.tasks[task].elapsed or 0.0
            rate = event.done / elapsed if elapsed > 0.5 else 0.0
            bar.update(task, completed=event.done, total=event.total, note=event.note, amount=_amount(event, rate))

        yield draw


def _amount(event: Event, rate: float) -> str:
    if event.unit == "bytes":
        return size(event.done) + (f" {size(int(rate))}/s" if rate else "")
    return f"{event.done:,} {event.unit}" + (f" {rate:,.0f}/s" if rate else "")


class _PlainProgress:
    """One line that is rewritten: how far, how fast, how much time is left."""

    def __init__(self) -> None:
        from klog.clock import SystemClock

        self._now = SystemClock().monotonic
        self._started: dict[str, float] = {}
        self._drawn = float("-inf")

    def __call__(self, event: Event) -> None:
        now = self._now()
        elapsed = now - self._started.setdefault(event.stage, now)
        whole = event.total is not None and event.done >= event.total
        if now - self._drawn < 0.1 and not whole:
            return
        self._drawn = now
        rate = event.done / elapsed if elapsed > 0.5 else 0.0
        share = f" {100 * event.done // event.total}%" if event.total else ""
        left = f" {_seconds((event.total - event.done) / rate)} left" if rate and event.total else ""
        click.echo(f"\r{event.stage}{share} {_amount(event, rate)}{left} {event.note}\x1b[K", err=True, nl=False)

    def end(self) -> None:
        """Begin a new line for what comes next."""
        click.echo("", err=True)


def _seconds(count: float) -> str:
    """Return 0:00:07, in the format of rich."""
    minutes, seconds = divmod(int(count), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
