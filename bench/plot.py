"""The plot of a run: a bar for each of klog's contestants, as long as its ratio to the peer, on a log scale.

An SVG whose text is kept as text and whose bytes depend only on the figures, so that a change shows in a diff.
"""

from __future__ import annotations

from pathlib import Path

from bench.figures import Figures, Line, lines

_MET, _MISSED, _NO_GOAL = "#2a7f62", "#c8553d", "#8d99ae"
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "klog", "font.size": 8, "font.family": "sans-serif"}
_ROW_INCHES = 0.19
_TICKS = [part * 10.0**power for power in range(-3, 4) for part in (1, 2, 5)]


def draw(run: Figures, path: Path) -> None:
    """Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = list(lines(run))
    places, titles = _places(bars)
    rows = [*places, *titles]
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(9, _ROW_INCHES * (max(rows, default=0) + 6)), layout="constrained")
        axes.barh(places, [bar.ratio - 1 for bar in bars], left=1, height=0.72, color=[_colour(bar) for bar in bars])
        for place, bar in zip(places, bars, strict=True):
            axes.annotate(f" {bar.ratio:.2f}", (_label_at(bar), place), va="center", fontsize=7)
            if bar.goal is not None:
                axes.plot([bar.goal, bar.goal], [place - 0.45, place + 0.45], color="black", linewidth=1.6)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlim(min([0.5, *(bar.ratio / 1.6 for bar in bars)]), max([2.0, *(bar.ratio * 1.6 for bar in bars)]))
        low, high = axes.get_xlim()
        axes.set_xticks([tick for tick in _TICKS if low <= tick <= high], minor=False)
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}x")
        axes.set_yticks(rows, [*(bar.contestant for bar in bars), *titles.values()])
        for row, label in zip(rows, axes.get_yticklabels(), strict=True):
            label.set_fontweight("bold" if row in titles else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(max(rows, default=0) + 0.8, -0.8)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_xlabel(f"commit {run['machine']['commit']}, {run['machine']['cpu']}, {run['machine']['cores']} cores")
        figure.suptitle("klog's speed as a multiple of its peer's; black tick: the goal", fontsize=10)
        handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in (_MET, _MISSED, _NO_GOAL)]
        named = ["goal met", "goal missed", "no goal"]
        figure.legend(handles, named, loc="outside lower center", ncols=3, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _places(bars: list[Line]) -> tuple[list[float], dict[float, str]]:
    """From top to bottom: a heading for each contest, its bars below it, and half a row of space."""
    places: list[float] = []
    titles: dict[float, str] = {}
    contest, row = "", 0.0
    for bar in bars:
        if bar.contest != contest:
            row += 0.5 * bool(contest)
            titles[row] = f"{bar.contest}, beside {bar.peer}"
            contest, row = bar.contest, row + 1
        places.append(row)
        row += 1
    return places, titles


def _colour(bar: Line) -> str:
    return {None: _NO_GOAL, True: _MET, False: _MISSED}[bar.met]


def _label_at(bar: Line) -> float:
    """Right of the bar, and of the goal where its tick would overlap the figure."""
    end = max(1.0, bar.ratio)
    return bar.goal if bar.goal is not None and end < bar.goal < 1.5 * end else end
