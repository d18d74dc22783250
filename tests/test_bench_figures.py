"""Benchmark contests and their report: equal work, limits and peers, goals met and missed, an up-to-date page."""

from __future__ import annotations

import json
import re

import pytest

from bench import plot, spark, table, tables
from bench.compare import PAGE, RESULTS
from bench.contest import Contest, Contestant, race
from bench.figures import figures, lines


def spin(count):
    def run():
        run.calls += 1
        return sum(range(count))

    run.calls = 0
    return run


def contest(*contestants, **more):
    return Contest("spin 1", 100, 0, contestants, lambda: None, **more)


def test_a_contestants_own_clock_is_used_and_all_do_the_same_work():
    klog, peer = spin(20_000), spin(10)

    def elsewhere():
        peer()
        return 0.25

    result = race(
        contest(Contestant("klog", klog), Contestant("peer", elsewhere, own_clock=True)),
        rounds=3,
        measurement_seconds=0.01,
    )
    assert result.scores[1].seconds == pytest.approx([0.25] * 3)
    assert klog.calls == peer.calls > 3 + 2


def test_without_an_own_clock_each_fills_its_time_slot():
    slow, fast = spin(20_000), spin(10)
    race(contest(Contestant("slow", slow), Contestant("fast", fast)), rounds=1, measurement_seconds=0.01)
    assert fast.calls > slow.calls


def result_of(*seconds, goal=None, limit=None):
    """The result of a contest with these seconds for klog and its peer, and a limit with its own."""
    klog, peer = (
        Contestant(name, lambda s=each: s, goal=goal if name == "klog" else None, own_clock=True)
        for name, each in zip(("klog", "peer"), seconds, strict=True)
    )
    copy = Contestant("copy", lambda: limit, own_clock=True) if limit else None
    return race(contest(klog, peer, limit=peer if limit == "peer" else copy), rounds=2, measurement_seconds=0)


def test_a_limit_is_measured_and_is_not_a_peer():
    result = result_of(0.2, 0.8, limit=0.1)
    assert [score.contestant for score in result.scores] == ["klog", "peer"]
    assert result.ratio(result.scores[0]) == pytest.approx(4)
    assert result.fraction(result.scores[0]) == pytest.approx(0.5)


def test_a_limit_may_be_the_peer():
    klog = Contestant("klog", lambda: 0.2, own_clock=True)
    peer = Contestant("peer", lambda: 0.1, own_clock=True)
    result = race(contest(klog, peer, limit=peer), rounds=2, measurement_seconds=0)
    assert result.limit is result.scores[1]
    (line,) = lines(figures([result], 2, {}))
    assert (line.ratio, line.fraction) == (0.5, 0.5)


@pytest.mark.parametrize(("goal", "met"), [(4, True), (3.5, True), (4.1, False), (None, None)])
def test_goals_are_compared_with_the_printed_ratio(goal, met):
    (line,) = lines(figures([result_of(0.2, 0.7999999, goal=goal)], 2, {}))
    assert line.met is met


def test_the_table_has_rate_peer_limit_and_goal():
    run = figures([result_of(1e-6, 4e-6, goal=5, limit=5e-7)], 2, {"spin 2": "a spinning wheel"})
    run["results"][0]["void_rounds"] = 0  # whatever else ran on this machine
    (row,) = table.text(run)
    assert " ".join(row.split()) == "spin 1 klog 100 Mrec/s peer 25 Mrec/s 4.00 copy 200 Mrec/s 0.50 ≥ 5 missed"
    page = table.markdown(run)
    assert "| spin 1 | klog | 100 Mrec/s | peer 25 Mrec/s | 4.00 | copy 200 Mrec/s | 0.50 | ≥ 5 | missed |" in page
    assert "- spin 1, klog: 4.00 times peer; the goal is 5" in page
    assert "- spin 2 needs: a spinning wheel" in page
    assert "0 of 1 goals met" in table.summary(run)


@pytest.mark.parametrize(("void", "ratio"), [(0, "4.00"), (1, "4.00"), (2, "~4.00")])
def test_results_disturbed_in_every_round_are_marked(void, ratio):
    run = figures([result_of(0.2, 0.8, goal=5)], 2, {})
    run["results"][0]["void_rounds"] = void
    (row,) = table.text(run)
    assert ratio in row.split()
    assert f"klog: {ratio} times peer" in table.markdown(run)


def test_the_table_is_replaced_between_its_markers():
    run = figures([result_of(0.2, 0.8)], 2, {})
    once = table.into(f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n", run)
    assert once.startswith("above\n")
    assert once.endswith("\nbelow\n")
    assert "old" not in once
    assert table.into(once, run) == once
    with pytest.raises(ValueError, match="no '<!--"):
        table.into("a page without markers", run)


def test_the_document_shows_the_stored_figures():
    assert table.into(PAGE.read_text(), json.loads(RESULTS.read_text())) == PAGE.read_text()


def test_the_page_has_the_stored_figures_of_spark():
    page = spark.PAGE.read_text()
    assert spark.into(page, json.loads(spark.RESULTS.read_text())) == page


def test_the_page_of_tables_has_the_stored_figures():
    page = tables.PAGE.read_text()
    assert table.between(page, tables.BEGIN, tables.markdown(json.loads(tables.RESULTS.read_text()))) == page


def test_every_headline_of_the_plot_is_a_contestant_with_a_goal():
    known = {(line.contest, line.contestant): line for line in lines(json.loads(RESULTS.read_text()))}
    headlines = [entry for entries in plot.HEADLINES.values() for entry in entries]
    assert len(headlines) == 12 and all(known[entry[:2]].goal is not None for entry in headlines)
    for contest, contestant, _, peer in headlines:
        assert peer.split()[0].lower() in known[contest, contestant].peer.lower()


def test_the_plot_fits_a_screen():
    drawn = RESULTS.with_suffix(".svg").read_text()
    width, height = map(float, re.findall(r'(?:width|height)="([\d.]+)pt"', drawn)[:2])
    assert width / 0.75 <= 1000 and height / 0.75 <= 700  # points to pixels
