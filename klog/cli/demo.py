"""klog demo"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing

import click

from klog.cli.output import json_option, print_json, progress_bar, progress_option
from klog.progress import Event, Progress


class StageBars:
    """One bar at a time, from a stage's first event until the stage is whole: text and a live bar never meet."""

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
    help="Where the log directory goes: new, empty, or an earlier demo's, which is replaced.",
)
@click.option("--no-spark", is_flag=True, help="Leave the Spark question out.")
@json_option
@progress_option
def command(directory: str, no_spark: bool, as_json: bool, progress: bool) -> None:
    """The main job on real data, end to end: a year of flights, a crash, a storm, a compaction, a count, a question.

    Takes about a minute and 300 MB of disk. Needs the extra [demo], and Java for the Spark question; without Java that
    step says what it needs, and the rest runs. With --json every number of the story comes as one object instead of it.

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
