"""Log.plot(): the segments of a log over time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.inspect.log_plot import Bar, bars

HOUR = 3_600_000
START = 1_700_000_000_000


def history(log: klog.Log, clock: ManualClock, hours: int) -> None:
    """Append two records an hour, with changing keys; one in four is a tombstone. Roll a segment each day."""
    for hour in range(hours):
        log.append([(b"%d" % (hour % 7), b"v" * 100), (b"%d" % (hour % 9), None if hour % 2 else b"v" * 100)])
        clock.advance(HOUR)
        if hour % 24 == 23:
            log.roll()


def facts(log: klog.Log) -> list[Bar]:
    return bars(log._core, log.page_cache())


def test_the_facts_of_each_segment(tmp_path: Path) -> None:
    clock = ManualClock(START)
    config = {"cleanup.policy": "compact", "delete.retention.ms": 1 << 40}
    with klog.Log.open(tmp_path / "prices-0", config=config, clock=clock) as log:
        history(log, clock, 48)
        assert [bar.state for bar in facts(log)] == ["dirty", "dirty"]
        log.compact()
        history(log, clock, 30)
        found = facts(log)
        assert [bar.state for bar in found] == ["clean", "dirty", "active"]
        assert [bar.tombstones for bar in found][1:] == [0.25, 1 / 4]
        assert [bar.first_ms for bar in found][1:] == [START + 48 * HOUR, START + 72 * HOUR]
        assert [bar.last_ms for bar in found][1:] == [START + 71 * HOUR, START + 77 * HOUR]
        assert [bar.size for bar in found] == [segment.size for segment in log.segments if segment.size]
        assert all(bar.cached is not None and 0 <= bar.cached <= 1 for bar in found)


def test_a_log_without_compaction_timestamps_or_readable_records(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "events-0", config={"cleanup.policy": "delete"}) as log:
        log.append([(None, None, -1), (None, None, -1)])
        [bar] = facts(log)
        assert (bar.state, bar.tombstones) == ("not compacted", 0.0)
        assert bar.first_ms == bar.last_ms > START
        log.update_config(klog.LogConfig({"cleanup.policy": "compact"}))
        path = Path(log.segments[0].path)
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        assert facts(log)[0].tombstones == 0.0


def test_plot_draws_into_given_axes_or_a_new_figure(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs: matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    clock = ManualClock(START)
    with klog.Log.open(tmp_path / "prices-0", config={"cleanup.policy": "compact"}, clock=clock) as log:
        assert log.plot().get_title("left") == "prices-0: 0 segments, 0 B"
        log.append([(b"0", b"v")])
        assert log.plot().get_title("left").startswith("prices-0: 1 segment, ")
        history(log, clock, 60)
        figure, ax = pyplot.subplots()
        assert log.plot(ax) is ax and log.plot(ax=None) is not ax
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [
            *("dirty", "active", "tombstones", "in the page cache")
        ]
        figure.savefig(tmp_path / "plot.png")
    pyplot.close("all")
    with pytest.raises(klog.errors.LogClosed):
        log.plot()


def test_plot_without_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with klog.Log.open(tmp_path / "prices-0") as log, pytest.raises(ImportError, match=r"klog\[plot\]"):
        log.plot()
