"""What verbs share: options, JSON, tables, progress. At start it imports only click.

--json prints one object; verbs that print many items also have --jsonl, one object a line. Otherwise the output is text
for people. Colour only on a terminal and without NO_COLOR; progress only if stderr is a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from klog.errors import KlogError
from klog.progress import Event, Progress

F = TypeVar("F", bound=Callable[..., Any])


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


def to_json(value: Any) -> str:
    """Return one line of JSON, without escaping non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def print_json(value: Any) -> None:
    """Print one object; indented on a terminal."""
    if sys.stdout.isatty():
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        click.echo(to_json(value))


@contextmanager
def json_list(head: dict[str, Any], name: str) -> Iterator[Callable[[str], None]]:
    """Print one object {**head, name: [...]} as its items come, so that a long list needs no memory.

    Yields a function that takes the JSON text of one item. An error ends the object, too: it is still valid JSON, and
    its last member `error` gives the reason.
    """
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
    except (KlogError, OSError, KeyboardInterrupt) as error:
        problem = f',"error":{to_json(str(error) or "interrupted")}'
        raise
    finally:
        write(f"]{problem}}}\n" if first else f"\n]{problem}}}\n")


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, right: str = "") -> None:
    """Print aligned columns. right: one character for each column, "r" for numbers, anything else for text."""
    texts = [[printable(str(cell)) if cell is not None else "-" for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *texts]) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    click.echo(styled(line(headers), bold=True))
    for row in texts:
        click.echo(line(row))


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


def size(count: int) -> str:
    """Return a number of bytes as text for people."""
    if count < 1024:
        return f"{count} B"
    number = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        number /= 1024
        if number < 1024 or unit == "TiB":
            break
    return f"{number:.1f} {unit}"


def moment(ms: int | None) -> str | None:
    """Return a timestamp as text for people; None stays None."""
    from klog.importing.values import iso

    return None if ms is None or ms < 0 else iso(ms)


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
