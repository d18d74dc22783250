"""klog demo"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing

import click

from klog.cli.output import json_option, print_json, progress_bar, progress_option
from klog.progress import Event, Progress


class StageBars:
    """One bar at a time, from the first event of a stage until it is complete: text and a live bar never mix."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._bar = ExitStack()
        self._stage: str | None = None
        self._draw: Progress | None = None

    def __call__(self, event: Event) -> None:
        if event.stage != self._stage:
            self.close()
            self._stage = event.stage
            self._draw = self._bar.enter_context(progress_bar(self._wanted))
        if self._draw is not None:
            self._draw(event)
        if event.total is not None and event.done >= event.total:
            self.close()

    def close(self) -> None:
        self._bar.close()
        self._stage = self._draw = None


@click.command("demo")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    default="klog-demo",
    show_default=True,
    type=click.Path(file_okay=False),
    help="The log directory: a new or empty one, or that of an earlier demo, which is replaced.",
)
@click.option("--no-spark", is_flag=True, help="Leave out the step with Spark.")
@json_option
@progress_option
def command(directory: str, no_spark: bool, as_json: bool, progress: bool) -> None:
    """A tour on real data: load a year of flights, kill a writer, find a storm, compact, count, ask Spark.

    Takes about a minute and 300 MB of disk. Needs the extra [demo], and Java for Spark; without Java that step prints
    what to install, and the others run. With --json, all numbers are printed as one object instead of the text.

    \b
    klog demo
    klog demo --dir /var/tmp/flights --no-spark
    """
    from klog import demo

    with closing(StageBars(progress)) as bars, open(os.devnull, "w") as nowhere:
        try:
            result = demo.run(directory, spark=not no_spark, progress=bars, out=nowhere if as_json else None)
        except demo.NotADemoDirectory as error:
            raise click.BadParameter(str(error), param_hint="--dir") from error
    if as_json:
        print_json(result.as_dict())
