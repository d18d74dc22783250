"""The plot of page_cache(): one stripe per partition, from its oldest byte to its newest, cold to hot.

Drawn by matplotlib (extra [plot]). White lines mark the ends of segments.
"""

from __future__ import annotations

import os
from typing import Any

from klog import extras
from klog.errors import KlogError

ROWS_MAX = 1000
KINDS = (".png", ".svg", ".pdf")
_ROW_INCHES = 0.3
_LINES_MAX = 200  # with more segments in a partition, the lines would hide the colours
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "klog", "font.size": 8, "font.family": "sans-serif"}


def check(path: str) -> None:
    """Raise ValueError for a file type that is not in KINDS, KlogError without matplotlib. Call it before the data of
    the plot is collected."""
    if not path.lower().endswith(KINDS):
        raise ValueError(f"{path}: the name must end with one of {', '.join(KINDS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise KlogError(str(extras.missing(f"{path}: a plot", "matplotlib", "plot", error))) from error


def draw(found: dict[str, Any], path: str) -> None:
    """Draw the result of page_cache(). Raises KlogError, OSError."""
    check(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [(topic["topic"], each) for topic in found["topics"] for each in topic["partitions"] if each["size"]]
    if len(rows) > ROWS_MAX:
        raise KlogError(f"{path}: {len(rows)} partitions are too many for one picture; name a topic")
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(10, _ROW_INCHES * len(rows) + 1.6), layout="constrained")
        longest = max((each["size"] for _, each in rows), default=1)
        image = None
        for row, (_, each) in enumerate(rows):
            edges = (0, each["size"] / 2**20, row + 0.4, row - 0.4)
            image = axes.imshow(
                [each["heat"]], extent=edges, aspect="auto", cmap="coolwarm", vmin=0, vmax=1, interpolation="nearest"
            )
            ends, end = [], 0.0
            for segment in each["segments"][:-1]:
                end += segment["size"] / 2**20
                ends.append(end)
            if len(ends) <= _LINES_MAX:
                axes.vlines(ends, row - 0.4, row + 0.4, color="white", linewidth=0.7)
        axes.set_xlim(0, longest / 2**20)
        axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        names = [f"{topic}-{each['partition']}  {100 * each['share']:.1f}%" for topic, each in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_xlabel("MiB of the log, oldest first")
        figure.suptitle(f"{100 * found['share']:.0f}% of {os.path.basename(os.path.abspath(found['path']))} is cached")
        if image is not None:
            figure.colorbar(image, ax=axes, label="cold to hot", ticks=[0, 0.5, 1])
        figure.savefig(path, metadata={"Date": None} if path.lower().endswith(".svg") else None)
        pyplot.close(figure)
