"""klog diff A B"""

from __future__ import annotations

import sys
from typing import Any

import click

from klog.cli.group import DATA_PROBLEM
from klog.cli.output import (
    counted,
    json_option,
    print_json,
    printable,
    progress_bar,
    progress_option,
    styled,
    table,
    usage_errors,
    wrapped,
)

_TEXTS = {
    "equal": "the same records",
    "missing": "only in one of the directories",
    "ends_earlier": "the same records, and one log ends earlier",
    "gap": "records that both have are the same; one log notes a gap, as klog rescue leaves it",
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
    logs' ends; records that compaction has removed from one of them, or that a rescue could not read. Damage that both
    have is on stderr, and no difference. Nothing is changed. Exit code 3 means that the directories differ.

    \b
    klog diff /var/lib/kafka/data /backup/data
    klog diff broker1/t-0 broker2/t-0 --json | jq '.partitions[0].first_divergence'
    """
    from klog.inspect import diff

    with usage_errors(), progress_bar(progress) as draw:
        found = diff(a, b, progress=draw)
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
            (entry["topic"], entry["partition"], entry["state"], _range(entry["a"]), _range(entry["b"]))
            for entry in differing
        ]
        table(("TOPIC", "PARTITION", "STATE", "A", "B"), rows, right="-rlll", drop=("B", "A"))
    for entry in differing:
        click.echo(wrapped(f"{entry['topic']}-{entry['partition']}: {_text(entry)}", "  "))
        if entry["first_divergence"] is not None and entry["a"]["epochs"] != entry["b"]["epochs"]:
            for side in "ab":
                epochs = ", ".join(f"{epoch} from {start}" for epoch, start in entry[side]["epochs"])
                name = f"{entry['topic']}-{entry['partition']}"
                click.echo(wrapped(f"{name}: leader epochs of {side.upper()}: {epochs or 'none'}", "  "))
        for side in "ab":
            for problem in (entry[side] or {"problems": ()})["problems"]:
                click.echo(f"klog: {printable(problem)}", err=True)
    unreadable = [problem for entry in found["partitions"] for problem in entry["unreadable_in_both"]]
    for problem in unreadable:
        click.echo(f"klog: in both: {printable(problem)}", err=True)
    same = len(found["partitions"]) - len(differing)
    verdict = styled("equal", fg="green") if found["equal"] else styled(f"{len(differing)} differ", fg="red")
    places = counted(len(unreadable), "place is damaged", "places are damaged")
    damage = f"; {places} in both" if unreadable else ""
    click.echo(wrapped(f"{verdict}: {counted(same, 'partition')} with the same records{damage}"))


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
