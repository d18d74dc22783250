"""Run contests and print their table: python -m bench.compare [NAME ...] [--without NAME] [--tiny] [--save FILE]

NAME selects the contests whose name contains it. --tiny runs everything with tiny inputs, to test that it still works:
ignore its figures. --save writes the figures with machine and commit. --docs runs nothing: it draws the figures of
bench/results/ratios.json and writes their table into docs/performance.md.

A contest that needs something that this machine does not have is left out, with a line that names it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench import (
    append_contests,
    broker_contests,
    checksum_contests,
    cleaner_contests,
    codec_contests,
    commit_contests,
    compaction_contests,
    compression_contests,
    engine_contests,
    fetch_contests,
    header_contests,
    kafka_contests,
    krabka_contests,
    log_contests,
    lookup_contests,
    network_contests,
    plot,
    reading_contests,
    retention_contests,
    segment_contests,
    send_contests,
    store_contests,
    sustained_contests,
    table,
    thread_contests,
)
from bench.contest import ROUNDS, Factory, Result, Unavailable, race
from bench.figures import figures, save

FACTORIES: dict[str, Factory] = {
    **codec_contests.FACTORIES,
    **append_contests.FACTORIES,
    **broker_contests.FACTORIES,
    **checksum_contests.FACTORIES,
    **commit_contests.FACTORIES,
    **compaction_contests.FACTORIES,
    **compression_contests.FACTORIES,
    **kafka_contests.FACTORIES,
    **engine_contests.FACTORIES,
    **fetch_contests.FACTORIES,
    **header_contests.FACTORIES,
    **cleaner_contests.FACTORIES,
    **krabka_contests.FACTORIES,
    **log_contests.FACTORIES,
    **lookup_contests.FACTORIES,
    **network_contests.FACTORIES,
    **reading_contests.FACTORIES,
    **retention_contests.FACTORIES,
    **segment_contests.FACTORIES,
    **send_contests.FACTORIES,
    **store_contests.FACTORIES,
    **sustained_contests.FACTORIES,
    **thread_contests.FACTORIES,
}
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "ratios.json"
PAGE = ROOT / "docs" / "performance.md"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="klog against its peers, in one run")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only contests whose name contains NAME")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="no contest that contains NAME")
    parser.add_argument("--tiny", action="store_true", help="a few records, one round: tests that it still works")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--docs", action="store_true", help="run nothing; draw the saved figures, write their table")
    asked = parser.parse_args(arguments)
    if asked.docs:
        document()
        return 0
    chosen = [name for name in FACTORIES if not asked.names or any(part in name for part in asked.names)]
    chosen = [name for name in chosen if not any(part in name for part in asked.without)]
    if not chosen:
        parser.error(f"no contest of that name; there are: {', '.join(FACTORIES)}")
    rounds = 1 if asked.tiny else asked.rounds
    results, skipped = [], {}
    print(table.head())
    for name in chosen:
        try:
            results.append(run(name, tiny=asked.tiny, rounds=rounds))
        except Unavailable as missing:
            skipped[name] = str(missing)
            print(f"{name:<24} needs: {missing}", flush=True)
            continue
        for line in table.text(figures(results[-1:], rounds, {})):
            print(line, flush=True)
    made = figures(results, rounds, skipped)
    print(f"\n{table.summary(made)}")
    save(made, asked.save)
    return 0


def run(name: str, *, tiny: bool, rounds: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
        contest = FACTORIES[name](tiny, Path(folder))
        try:
            return race(contest, rounds=rounds, measurement_seconds=0) if tiny else race(contest, rounds=rounds)
        finally:
            contest.close()


def document() -> None:
    """Draw the plot beside the accepted figures, and write their table into the document."""
    run = json.loads(RESULTS.read_text())
    plot.draw(run, RESULTS.with_suffix(".svg"))
    PAGE.write_text(table.into(PAGE.read_text(), run))


if __name__ == "__main__":
    sys.exit(main())
