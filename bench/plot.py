"""The plot of a run: one bar for each of twelve important calls. Its length is the ratio to a named peer, on a log
scale.

It has about 960 x 640 pixels, which fit a screen; the table has the other contestants. The SVG keeps text as text, and
its bytes depend only on the figures, so that a diff shows a change.
"""

from __future__ import annotations

from pathlib import Path

from bench.figures import Figures, Line, lines

# Heading: (contest, klog's contestant, the call in words, the peer in words). The calls that programs use most, whether
# they meet their goals or not.
HEADLINES = {
    "write": [
        ("encode 100B", "klog tuples -> group", "encode tuples of 100 B", "aiokafka"),
        ("encode 100B", "klog columns (Arrow) -> group", "encode Arrow columns, 100 B", "aiokafka"),
        ("store append 100B", "klog Log.append, 1,000 tuples", "append 1,000 records of 100 B", "LMDB"),
        ("kafka append leader 1MiB none", "klog append_batches", "append a produced batch, 1 MiB", "Kafka"),
    ],
    "read": [
        ("decode unread 100B", "klog.record.columns (Arrow)", "decode to Arrow, 100 B", "aiokafka"),
        ("kafka decode 100B", "klog pairs (key, value)", "decode keys and values, 100 B", "Kafka"),
        ("store scan 100B", "klog Log.read(), every value", "scan every value, 100 B", "LMDB"),
        ("kafka fetch random", "klog Log.fetch", "fetch 4 KiB at a random offset", "Kafka"),
        ("send tcp 64KiB", "klog FetchData.send_to", "send 64 KiB to a socket", "sendfile in C"),
    ],
    "maintain": [
        ("kafka open segments", "klog.open, every log loaded", "open after a clean stop", "Kafka"),
        ("kafka recover 100B", "klog Log.open after a crash", "recover after a crash", "Kafka"),
        ("kafka compact none 100B", "klog Log.compact", "compact, 100 B", "Kafka"),
    ],
}
_MET, _MISSED, _NO_GOAL = "#2a7f62", "#c8553d", "#8d99ae"
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "klog", "font.size": 10, "font.family": "sans-serif"}
_TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]


def draw(run: Figures, path: Path) -> None:
    """Draw the calls of HEADLINES that the run has. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    places, bars, labels, titles = _chosen(run)
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(10, 6.6), layout="constrained")
        axes.barh(places, [bar.ratio - 1 for bar in bars], left=1, height=0.7, color=[_colour(bar) for bar in bars])
        for place, bar, (_, peer) in zip(places, bars, labels, strict=True):
            text = f" {'~' * bar.disturbed}{bar.ratio:.2f} × {peer}"
            axes.annotate(text, (_label_at(bar), place), va="center", fontsize=9)
            if bar.goal is not None:
                axes.plot([bar.goal, bar.goal], [place - 0.45, place + 0.45], color="black", linewidth=1.8)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        low = min([0.5, *(bar.ratio / 1.3 for bar in bars)])
        high = 3 * max([2.0, *(max(bar.ratio, bar.goal or 0) for bar in bars)])  # space for the last label
        axes.set_xlim(low, high)
        axes.set_xticks([tick for tick in _TICKS if low <= tick <= high], minor=False)
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}×")
        axes.set_yticks([*places, *titles], [*(label for label, _ in labels), *titles.values()])
        for number, label in enumerate(axes.get_yticklabels()):
            label.set_fontweight("bold" if number >= len(places) else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(max([0.0, *places]) + 0.8, -0.8)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        machine = run["machine"]
        axes.set_xlabel(f"commit {machine['commit']}, {machine['cpu']}, {machine['cores']} cores", fontsize=9)
        figure.suptitle("klog's speed as a multiple of its peer's")
        shown: list[object] = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in (_MET, _MISSED, _NO_GOAL)]
        shown.append(pyplot.Line2D([], [], color="black", marker="|", markersize=11, markeredgewidth=1.8, linewidth=0))
        named = ["goal met", "goal missed", "no goal", "the goal"]
        figure.legend(shown, named, loc="outside lower center", ncols=4, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _chosen(run: Figures) -> tuple[list[float], list[Line], list[tuple[str, str]], dict[float, str]]:
    """Return, from top to bottom: the y position of each bar, the bar, its label and peer; and the headings by y."""
    known = {(line.contest, line.contestant): line for line in lines(run)}
    places: list[float] = []
    bars: list[Line] = []
    labels: list[tuple[str, str]] = []
    titles: dict[float, str] = {}
    row = 0.0
    for title, entries in HEADLINES.items():
        found = [entry for entry in entries if entry[:2] in known]
        if not found:
            continue
        titles[row] = title
        for number, (contest, contestant, label, peer) in enumerate(found, 1):
            places.append(row + number)
            bars.append(known[contest, contestant])
            labels.append((label, peer))
        row += len(found) + 1.4
    return places, bars, labels, titles


def _colour(bar: Line) -> str:
    return {None: _NO_GOAL, True: _MET, False: _MISSED}[bar.met]


def _label_at(bar: Line) -> float:
    """Return the x position of a bar's label: right of the bar, or right of the goal if its tick would overlap the
    label."""
    end = max(1.0, bar.ratio)
    return bar.goal * 1.03 if bar.goal is not None and end / 1.1 < bar.goal < 3 * end else end
