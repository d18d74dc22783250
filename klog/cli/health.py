"""klog health DIR"""

from __future__ import annotations

import sys

import click

from klog.cli.group import DATA_PROBLEM
from klog.cli.output import counted, json_option, print_json, printable, styled, usage_errors, wrapped

_COLOURS = {"critical": "red", "warning": "yellow", "ok": "green"}
_INDENT = " " * 11


@click.command("health")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--all", "everything", is_flag=True, help="Also show what is ok, and what cannot be known.")
@json_option
@click.pass_context
def command(ctx: click.Context, directories: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Check the health of log directories: disks, logs, limits of the process, settings of the machine.

    DIR is a log.dir, of klog or of a broker, running or stopped; it is opened read-only and not changed. Several are
    those of one process. Each finding has its next step. What only the process that writes knows, such as flush times,
    is not checked: call logs.health() there. Exit code 3 means that a finding is critical.

    \b
    klog health data
    klog health /var/lib/kafka/data --json | jq '.findings[] | select(.severity != "ok")'
    """
    from klog.inspect.files import check_log_dir
    from klog.manager import open_directory

    for directory in directories:
        check_log_dir(directory)
    with usage_errors(), open_directory(list(directories), read_only=True) as logs:
        report = logs.health()
    if as_json:
        print_json(report.to_dict())
    else:
        for finding in report.findings:
            if everything or finding.severity != "ok":
                _show(finding.severity, f"{finding.check}: {finding.subject}: {finding.message}")
                if finding.next_step:
                    click.echo("         " + wrapped(f"→ {finding.next_step}", _INDENT, 9))
        for check, reason in report.unknown.items() if everything else ():
            _show("unknown", f"{check}: {reason}")
        counts = dict.fromkeys(_COLOURS, 0)
        for finding in report.findings:
            counts[finding.severity] += 1
        summary = (
            f"{counts['critical']} critical, {counted(counts['warning'], 'warning')}, {counts['ok']} ok, "
            f"{len(report.unknown)} not known from outside"
        )
        click.echo(wrapped(summary))
    sys.stdout.flush()
    if report.severity == "critical":
        ctx.exit(DATA_PROBLEM)


def _show(severity: str, text: str) -> None:
    click.echo(f"{styled(f'{severity:8}', fg=_COLOURS.get(severity))} {wrapped(printable(text), _INDENT, 9)}")
