"""What verbs share: options, JSON, tables, progress. Nothing here is imported at start but click.

--json prints one object; where many things come out one by one, --jsonl prints one object a line. Without them the
output is text for people. Colour only on a terminal and without NO_COLOR; progress only where stderr is a terminal.
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
    return click.option("--jsonl", "as_jsonl", is_flag=True, help="One JSON object a line, as it comes.")(function)


def progress_option(function: F) -> F:
    """--no-progress"""
    return click.option(
        "--progress/--no-progress", "progress", default=True, help="Progress on stderr, on a terminal only."
    )(function)


def to_json(value: Any) -> str:
    """One line of JSON, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def print_json(value: Any) -> None:
    """One object; indented for eyes."""
    if sys.stdout.isatty():
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        click.echo(to_json(value))


@contextmanager
def json_list(head: dict[str, Any], name: str) -> Iterator[Callable[[str], None]]:
    """One object {**head, name: [...]} printed as its items come, so that a long list needs no memory.

    Yields a function that takes the JSON text of one item. What ends the list early ends the object too: it is JSON all
    the same, and its last member `error` says why it is not whole.
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
    """Aligned columns. right: for each column one character, "r" for numbers, anything else for text."""
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
    """Text with colour or weight, where stdout is a terminal and NO_COLOR is not set."""
    return click.style(text, **style) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def printable(text: str) -> str:
    """Text that cannot move the cursor: control characters and lone surrogates as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number and its noun: `1 batch`, `1,024 batches`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count: int) -> str:
    """Bytes for eyes."""
    if count < 1024:
        return f"{count} B"
    number = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        number /= 1024
        if number < 1024 or unit == "TiB":
            break
    return f"{number:.1f} {unit}"


def moment(ms: int | None) -> str | None:
    """A timestamp for eyes; None stays None."""
    from klog.importing.values import iso

    return None if ms is None or ms < 0 else iso(ms)


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Progress | None]:
    """A callback for library functions that draws on stderr, or None where nobody would see it.

    rich draws bar, rate and time left (extra [terminal]); without it a line is rewritten once in a while.
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
    """One line, written again and again: how far, how fast, how long to go."""

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
        """What comes next has a line of its own."""
        click.echo("", err=True)


def _seconds(count: float) -> str:
    """0:00:07, as rich writes it."""
    minutes, seconds = divmod(int(count), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
