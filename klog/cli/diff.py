"""klog diff A B"""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.group import DATA_PROBLEM
from klog.cli.output import counted, json_option, print_json, printable, progress_bar, progress_option, styled, table

_TEXTS = {
    "equal": "the same records",
    "missing": "only in one of the directories",
    "ends_earlier": "the same records, and one log ends earlier",
    "compacted": "records that both have are the same",
    "starts_later": "the same records, and one log starts later",
    "damaged": "the same, where it could be read",
}


@click.command("diff")
@click.argument("a", metavar="A", type=click.Path(exists=True, file_okay=False))
@click.argument("b", metavar="B", type=click.Path(exists=True, file_okay=False))
@json_option
@progress_option
@click.pass_context
def command(ctx: click.Context, a: str, b: str, as_json: bool, progress: bool) -> None:
    """Compare two log.dirs or two partition directories: replicas, or a backup and its original.

    Records are compared with their offsets, epochs and producers, however they are cut into batches and segments.
    Printed for each partition that differs: the first offset with different records, and the leader epochs there; the
    logs' ends; records that compaction has removed from one of them. Nothing is changed. Exit code 3 means that the
    directories differ.

    \b
    klog diff /var/lib/kafka/data /backup/data
    klog diff broker1/t-0 broker2/t-0 --json | jq '.partitions[0].first_divergence'
    """
    from klog.inspect import diff

    try:
        with progress_bar(progress) as draw:
            found = diff(a, b, progress=draw)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    if as_json:
        print_json(found)
    else:
        _print(found)
    sys.stdout.flush()
    if not found["equal"]:
        ctx.exit(DATA_PROBLEM)


def _print(found: dict[str, Any]) -> None:
    differing = [entry for entry in found["partitions"] if entry["state"] != "equal"]
    if differing:
        rows = [
            (entry["topic"], entry["partition"], entry["state"], _range(entry["a"]), _range(entry["b"]), _text(entry))
            for entry in differing
        ]
        table(("TOPIC", "PARTITION", "STATE", "A", "B", "FOUND"), rows, right="-r----")
    for entry in differing:
        if entry["first_divergence"] is not None and entry["a"]["epochs"] != entry["b"]["epochs"]:
            for side in "ab":
                epochs = ", ".join(f"{epoch} from {start}" for epoch, start in entry[side]["epochs"])
                click.echo(
                    f"{entry['topic']}-{entry['partition']}: leader epochs of {side.upper()}: {epochs or 'none'}"
                )
        for side in "ab":
            for problem in (entry[side] or {"problems": ()})["problems"]:
                click.echo(f"klog: {printable(problem)}", err=True)
    same = len(found["partitions"]) - len(differing)
    verdict = styled("equal", fg="green") if found["equal"] else styled(f"{len(differing)} differ", fg="red")
    click.echo(f"{verdict}: {counted(same, 'partition')} with the same records")


def _range(side: dict[str, Any] | None) -> str:
    return "-" if side is None else f"[{side['log_start_offset']}, {side['log_end_offset']})"


def _text(entry: dict[str, Any]) -> str:
    divergence = entry["first_divergence"]
    if divergence is not None:
        epochs = f"epoch {divergence['epoch_a']} in A, {divergence['epoch_b']} in B"
        return f"first at offset {divergence['offset']} ({epochs}): {', '.join(divergence['fields'])}"
    parts = [_TEXTS[entry["state"]]]
    for side in "ab":
        missing = entry[f"missing_in_{side}"]
        if missing["count"]:
            records = counted(missing["count"], "record")
            parts.append(f"{records} not in {side.upper()}, from offset {missing['first_offset']} on")
    return "; ".join(parts)
