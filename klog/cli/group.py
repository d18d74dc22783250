"""The group of verbs: loads them by name, and reports their errors as one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from klog import __version__
from klog.cli.output import Printed, error_fields, os_error, print_json, printable
from klog.cli.signals import ended_by_signals
from klog.cli.streams import STDOUT, discard_stdout, prepare_streams, print_any_name, print_json_as_utf_8
from klog.errors import (
    AlreadyLocked,
    BadValue,
    CorruptData,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    KlogError,
    UnsupportedCompression,
)

OK, FAILURE, USAGE, DATA_PROBLEM, LOCKED, INTERRUPTED = 0, 1, 2, 3, 4, 130

# verb: (module of klog.cli, help in one line)
VERBS = {
    "demo": ("demo", "A tour on real data, end to end."),
    "import": ("import_", "Load CSV, JSON lines or Parquet into a topic."),
    "export": ("export", "Write a topic to Parquet, Arrow, CSV or JSON lines."),
    "cat": ("cat", "Print records as text or JSON; -f follows."),
    "dump": ("dump", "Decode any file of a log directory."),
    "verify": ("verify", "Check every invariant of a log directory, read-only."),
    "compact": ("compact", "Compact by hand, or purge a key."),
    "bench": ("bench", "Measure klog, or I/O policies, on this disk."),
    "ls": ("ls", "List topics, partitions, offsets, sizes, time span."),
    "groups": ("groups", "List consumer groups, their members, offsets and lag."),
    "transactions": ("transactions", "List transactional ids and open transactions."),
    "diff": ("diff", "Compare two directories: the first offset that differs."),
    "health": ("health", "Check disks, logs, limits and settings; each finding has its next step."),
    "tune": ("tune", "Recommend settings from the workload seen and the disk; --apply sets them."),
    "repair": ("repair", "Cut what cannot be read, and keep a copy."),
    "rescue": ("rescue", "Write every readable batch into a new directory."),
    "handover": ("handover", "Make a directory one that a stock Kafka starts on, or take one over."),
    "top": ("top", "Show live what is appended, lags of readers, use of the disks."),
    "broker": ("broker", "Serve a log directory to Kafka clients; without DIR a broker for tests."),
    "cache": ("cache", "Show how much of each log is in the page cache."),
    "config": ("config", "Explain configuration keys."),
}


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, AlreadyLocked):
        return LOCKED
    if isinstance(error, (InvalidConfig, InvalidPartitions, InvalidTopic, UnsupportedCompression)):
        return USAGE
    if isinstance(error, (CorruptData, BadValue)):
        return DATA_PROBLEM
    from klog.importing.errors import RowError, UnknownColumn, UnknownFormat

    if isinstance(error, RowError):
        return DATA_PROBLEM
    return USAGE if isinstance(error, (UnknownColumn, UnknownFormat)) else FAILURE


class VerbGroup(click.Group):
    """The verbs of VERBS. main() handles errors, for the script and for tests."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _) in VERBS.items() if importlib.util.find_spec(f"klog.cli.{module}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"klog.cli.{VERBS[cmd_name][0]}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]}?" if near else "klog --help lists the verbs."
            ctx.fail(f"No verb {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, VERBS[name][1]) for name in self.list_commands(ctx)])

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        print_any_name()
        sys.exit(self._run(args, prog_name, extra))

    def _run(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> int:
        words = list(sys.argv[1:] if args is None else args)
        options = words[: words.index("--") if "--" in words else None]
        as_json = "--json" in options
        if as_json or "--jsonl" in options:
            print_json_as_utf_8()
        printed = Printed()
        try:
            return self._call(words, prog_name, {**extra, "obj": printed})
        except BrokenPipeError:
            discard_stdout()
            return OK
        except (click.ClickException, click.Abort, KeyboardInterrupt, SystemExit, KlogError, OSError) as error:
            return failed(error, as_json=as_json and not printed.began_json)

    def _call(self, args: list[str], prog_name: str | None, extra: dict[str, Any]) -> int:
        with ended_by_signals():
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click handles it, with exit code 1
            discard_stdout()
            ctx.exit(OK)


def failed(error: BaseException, *, as_json: bool) -> int:
    """Print an error on stderr, and before that as JSON on stdout, and return its exit code."""
    if as_json:
        with contextlib.suppress(OSError):
            print_json({"error": error_fields(error)})
            sys.stdout.flush()
    if isinstance(error, click.ClickException):
        error.show()
        return USAGE if isinstance(error, click.UsageError) else error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt, SystemExit)):
        _report("interrupted", *getattr(error.__cause__ or error, "__notes__", ()))  # click makes an Abort of Ctrl-C
        return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else INTERRUPTED
    if isinstance(error, OSError) and error.filename == STDOUT:
        discard_stdout()  # what is still buffered would fail again when the process exits
    message = os_error(error) if isinstance(error, OSError) and not isinstance(error, KlogError) else str(error)
    _report(message, *getattr(error, "__notes__", ()))
    return exit_code(error)


def _report(message: str, *notes: str) -> None:
    with contextlib.suppress(OSError):  # of a terminal that has closed
        for text in (message, *notes):
            click.echo("klog: " + "\n".join(map(printable, text.split("\n"))), err=True)


@click.group(
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failure, 2 usage, 3 data problem found, 4 locked, 130 interrupted.",
)
@click.version_option(__version__, prog_name="klog")
def cli() -> None:
    """Kafka's storage engine on the command line. The files are Kafka's own.

    \b
    klog import flights.csv.gz --dir data --topic flights --key tailnum --timestamp time_hour
    klog cat --dir data --topic flights --from 2013-02-08T05:00:00Z --max 5
    klog verify /var/lib/kafka/data
    """


def main() -> NoReturn:
    """The `klog` script, after its imports."""
    if not prepare_streams():
        sys.exit(FAILURE)
    cli.main(prog_name="klog")
    raise AssertionError("cli.main exits")
