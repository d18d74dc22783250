"""Each script of examples/ has the exact result: two of them for a part of the data. The deep tests run all of them on all
data, and compare the output with the page in docs/examples."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klog.demo.events import flights_table

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
    pytest.mark.usefixtures("spark"),
]

ROOT = Path(__file__).resolve().parents[2]
HOUR_MS = 3_600_000


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a script of examples/ by its name."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module


def page(name: str) -> str:
    """Return the output of an example that its page shows."""
    found = re.search(
        r"^```text\n(.*?)^```$", (ROOT / f"docs/examples/{name}.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert found
    return found[1]


def check_picture(path: Path) -> None:
    assert path.stat().st_size < 60_000
    assert path.read_text().count("<path") > 5


def test_examples_print_no_warning_about_pandas() -> None:
    """A session imports the module that warns."""
    script = "import pyspark.testing.utils"
    examples = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), str(ROOT)])}
    without, with_filter = (
        subprocess.run([sys.executable, "-c", each], env=examples, capture_output=True, text=True, check=True).stderr
        for each in (script, f"import flights; {script}")
    )
    if "FutureWarning" not in without:
        pytest.skip("needs: a pandas that PySpark does not support yet")
    assert "FutureWarning" not in with_filter


@pytest.mark.parametrize("count", [2000, pytest.param(None, marks=pytest.mark.deep)])
def test_flights_by_delay(
    count: int | None, example: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = example("flights_by_delay").main(tmp_path / "here", count)
    left = example("flights").table(count).dropna(subset="dep_delay").groupby("hour").dep_delay
    exact = zip(left.count().items(), left.mean(), left.agg(lambda delay: (delay > 60).mean()), strict=True)
    assert [tuple(row) for row in found] == [
        (hour, flights, pytest.approx(mean), pytest.approx(share)) for (hour, flights), mean, share in exact
    ]
    check_picture(tmp_path / "here" / "flights-by-delay.svg")
    if count is None:
        assert capsys.readouterr().out == page("flights-by-delay")


def closed_hours(times: pd.Series, hours: int, batch: int) -> dict[int, tuple[int, int]]:
    """Return {hour: (events, counted events)} of the hours that a watermark closes, by Spark's rules.

    The watermark of a batch is the greatest time of the batches before it minus `hours`. It closes hours at the end of the
    batch. From the next batch on, events of closed hours are dropped.
    """
    exact = Counter(time // HOUR_MS for time in times)
    counted: Counter[int] = Counter()
    dropping, closing = 0, 0
    for start in range(0, len(times), batch):
        part = times[start : start + batch]
        counted.update(time // HOUR_MS for time in part if (time // HOUR_MS + 1) * HOUR_MS > dropping)
        dropping, closing = closing, max(closing, max(part) - hours * HOUR_MS)
    return {
        hour * HOUR_MS: (exact[hour], count)
        for hour, count in sorted(counted.items())
        if (hour + 1) * HOUR_MS <= closing
    }


@pytest.mark.deep
def test_late_events(
    example: Callable[[str], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    late_events, watermarks, batch = example("late_events"), (1, 2, 4), 500
    words = tuple(f"{hours} hour{'s' * (hours > 1)}" for hours in watermarks)
    runs = late_events.main(tmp_path / "here", late_events.WEEK, words, batch)
    times = late_events.load(tmp_path / "again", late_events.WEEK).dt.as_unit("ms").astype("int64").tolist()
    assert len(runs) == len(watermarks)
    for hours, run in zip(watermarks, runs, strict=True):
        wanted = closed_hours(times, hours, batch)
        found = run.hours.set_axis(run.hours.index.as_unit("ms").astype("int64"))
        assert dict(zip(found.index, found.itertuples(index=False, name=None), strict=True)) == wanted
        assert run.dropped == sum(exact - counted for exact, counted in wanted.values()) > 0
    check_picture(tmp_path / "here" / "late-events.svg")
    assert capsys.readouterr().out == page("late-events")
    assert (words, batch) == (late_events.main.__defaults__[1:])
    first = flights_table().query("month == 1 and day <= 7")
    assert len(first) == late_events.WEEK


@pytest.mark.parametrize("count", [2000, pytest.param(None, marks=pytest.mark.deep)])
def test_latest_state(
    count: int | None,
    spark: SparkSession,
    example: Callable[[str], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = example("latest_state").main(tmp_path / "here", count)
    rows = example("flights").table(count)
    arrived, left = int(rows.arrived.notna().sum()), int(rows.departed.notna().sum())
    assert found == {"arrived": arrived, "departed": left - arrived}
    table = spark.read.parquet(str(tmp_path / "here" / "table"))
    assert table.count() == table.select("key").distinct().count() == left
    out = capsys.readouterr().out
    assert f"{len(rows):9,} after compaction" in out and f"{left:9,} restored, 0 of them changed" in out
    check_picture(tmp_path / "here" / "latest-state.svg")
    if count is None:
        assert out == page("latest-state")
