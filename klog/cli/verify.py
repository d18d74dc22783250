"""klog verify DIR"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from klog.cli.group import DATA_PROBLEM
from klog.cli.output import counted, json_option, print_json, printable, progress_bar, progress_option, styled
from klog.shown import size

if TYPE_CHECKING:
    from klog.report import Problem, Report


@click.command("verify")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@json_option
@progress_option
@click.pass_context
def command(ctx: click.Context, directory: str, as_json: bool, progress: bool) -> None:
    """Check every invariant of a log directory, offline and read-only.

    DIR is a log.dir or one partition directory. What the next start removes or ignores is a note on stderr. Exit code 3
    means that there are problems; each is printed with file, position, offset and kind: crc, length, offset_order,
    epoch, index, timeindex, txnindex, snapshot, checkpoint, leftover, gap.

    \b
    klog verify data
    klog verify /var/lib/kafka/data --json | jq '.problems[]'
    """
    from klog.inspect import verify

    with progress_bar(progress) as draw:
        report = verify(directory, draw)
    if as_json:
        print_json(report.to_dict())
    else:
        for problem in report.problems:
            click.echo(printable(str(problem)))
        read = (
            f"{counted(report.partitions, 'partition')}, {counted(report.segments, 'segment')}, "
            f"{counted(report.batches, 'batch', 'batches')}, {counted(report.records, 'record')}, {size(report.bytes)}"
        )
        found = len(report.problems)
        for line in _notes(report):
            click.echo(f"klog: note: {printable(line)}", err=True)
        verdict = styled("sound", fg="green") if report.ok else styled(counted(found, "problem"), fg="red")
        click.echo(f"{verdict}: {read}")
    sys.stdout.flush()
    if not report.ok:
        ctx.exit(DATA_PROBLEM)


def _notes(report: Report) -> Iterator[str]:
    """A line for each note; notes of one directory with the same text are counted."""
    alike: dict[tuple[str, str, str], list[Problem]] = {}
    for note in report.notes:
        alike.setdefault((os.path.dirname(note.path), note.kind, note.message), []).append(note)
    for (directory, kind, message), notes in alike.items():
        yield str(notes[0]) if len(notes) == 1 else f"{directory}: {len(notes)} files: {kind}: {message}"
