"""The table of a run: as text for a terminal, and as Markdown between two markers of a document.

Only `python -m bench.compare --docs` writes the text between its markers. Other tables use between(), too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from bench.figures import Figures, Line, lines

BEGIN = "<!-- written by python -m bench.compare --docs, from bench/results/ratios.json -->"
END = "<!-- end of what is written -->"
_HEAD = ("contest", "contestant", "klog", "peer", "ratio", "limit", "of limit", "goal", "")
_WIDTHS = (24, 34, 12, 46, 7, 24, 8, 7, 6)


def head() -> str:
    return _text(_HEAD)


def text(run: Figures) -> Iterator[str]:
    """Yield a line for each of klog's contestants."""
    contest = ""
    for line in lines(run):
        cells = _cells(line)
        yield _text((line.contest if line.contest != contest else "", *cells[1:]))
        contest = line.contest


def summary(run: Figures) -> str:
    void = sum(result["void_rounds"] for result in run["results"])
    made = [line for line in lines(run) if line.goal is not None]
    met = sum(line.met is True for line in made)
    return (
        f"{met} of {len(made)} goals met; {run['rounds']} rounds each, "
        f"{void} void rounds (steal or run-queue wait) run again; ~: disturbed so often that the ratio is unreliable"
    )


def markdown(run: Figures) -> str:
    """Return the machine, the table, and every goal that was missed, as Markdown."""
    machine = run["machine"]
    out = [f"{made_on(machine)}: {summary(run)}.", "", *rows(_HEAD, map(_cells, lines(run)))]
    out += ["", "Goals missed in this run:", ""]
    out += [
        f"- {line.contest}, {line.contestant}: {_ratio(line)} times {line.peer}; the goal is {line.goal:g}"
        for line in lines(run)
        if line.met is False
    ] or ["- none"]
    if run["skipped"]:
        out += ["", "Not run:", "", *(f"- {name} needs: {needs}" for name, needs in run["skipped"].items())]
    return "\n".join(out)


def into(page: str, run: Figures) -> str:
    """Return the page with the table of this run between its markers."""
    return between(page, BEGIN, markdown(run))


def between(page: str, marker: str, written: str) -> str:
    """Return the page with `written` between the marker and the next END. Raises ValueError if the page lacks them."""
    before, begin, rest = page.partition(marker)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {marker!r} followed by {END!r}")
    return f"{before}{begin}\n{written}\n{end}{after}"


def made_on(machine: dict[str, Any]) -> str:
    """Return the commit and the machine of a run, as the beginning of a sentence."""
    where = f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}"
    return f"At commit {machine['commit']} on {where}"


def rows(head: Sequence[str], body: Iterable[Sequence[str]], *, left: int | None = None) -> list[str]:
    """Return a table in Markdown. left: the number of columns that are aligned to the left; None: all."""
    rules = ["---" if left is None or index < left else "---:" for index in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, rules, *body)]


def aligned(cells: Sequence[str], widths: Sequence[int], right: Container[int]) -> str:
    """Return a line for a terminal. The columns in `right` are aligned to the right."""
    padded = [
        f"{cell:>{width}}" if index in right else f"{cell:<{width}}"
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return " ".join(padded).rstrip()


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.contest,
        line.contestant,
        line.rate,
        f"{line.peer} {line.peer_rate}",
        _ratio(line),
        f"{line.limit} {line.limit_rate}" if line.limit and line.limit != line.peer else "the peer" * bool(line.limit),
        "" if line.fraction is None else f"{line.fraction:.2f}",
        "" if line.goal is None else f"≥ {line.goal:g}",
        {None: "", True: "met", False: "missed"}[line.met],
    )


def _ratio(line: Line) -> str:
    return f"{'~' * line.disturbed}{line.ratio:.2f}"


def _text(cells: tuple[str, ...]) -> str:
    return aligned(cells, _WIDTHS, right=(2, 4, 6))
