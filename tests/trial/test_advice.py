"""The advice that klog bench disk derives from its figures."""

from __future__ import annotations

import pytest

from klog.trial import Result, recommend
from klog.trial.report import summed_up


def result(contest: str, way: str, value: float, ratio: float, **more: float) -> Result:
    figures = {"value": value, **{name.replace("_", " "): figure for name, figure in more.items()}}
    return Result(contest, way, {}, figures, ratio, more.get("ratio_min", ratio), 3)


def appends(way: str, *ratios: float, low: float | None = None) -> list[Result]:
    return [
        Result(f"append {size}", way, {}, {"MB/s to the disk": 100 * ratio}, ratio, ratio if low is None else low, 3)
        for size, ratio in zip(("4 KiB", "64 KiB", "1 MiB"), ratios, strict=True)
    ]


def durable(ms: float) -> list[Result]:
    return [
        result("durable append 4 KiB", "1 thread", 1000 / ms, 1, p50_ms=ms),
        result("durable append 4 KiB", "4 threads", 3000 / ms, 3, p50_ms=ms * 1.2),
    ]


PLAIN = appends("buffered", 1, 1, 1)


@pytest.mark.parametrize(
    ("results", "setting", "reason"),
    [
        (durable(0.01), 'durability="os"', "does not flush"),
        (durable(0.5), 'durability="sync"', "4 threads reach 6,000 a second"),
        (durable(5), 'durability="sync" with several appending threads, or "interval"', "share one flush"),
        (durable(40), 'durability="interval" with flush.ms=1000', "too slow"),
        (
            [result("sequential read", way, mb, mb / 900) for way, mb in {"cold": 300, "cold, direct": 450}.items()],
            "klog.io.read=direct for logs that are scanned cold",
            "1.50 times",
        ),
        (PLAIN + appends("zeros ahead", 1.3, 1.2, 1.4), "klog.io.preallocate=zeros", "1.30 times"),
        (PLAIN + appends("no blocks ahead", 1.3, 1.2, 1.4), "klog.io.preallocate=none", "1.30 times"),
        (PLAIN + appends("zeros ahead", 1.05, 1.0, 1.4), "klog.io.preallocate=steps", "the default"),
        (PLAIN + appends("zeros ahead", 1.3, 1.2, 1.4, low=0.5), "klog.io.preallocate=steps", "the default"),
        (
            PLAIN + appends("direct", 0.95, 0.97, 1.4) + appends("dontcache", 0.5, 0.6, 0.7),
            "klog.io.write=direct for bulk loads",
            "0.97 of the buffered rate",
        ),
        (
            PLAIN + appends("dontcache", 0.95, 0.97, 1),
            "klog.io.write=dontcache for bulk loads",
            "the page cache is kept",
        ),
        (
            PLAIN + appends("write-behind", 0.95, 0.97, 1),
            "klog.io.write.behind.bytes=268435456 for bulk loads",
            "the page cache is kept",
        ),
        (PLAIN + appends("write-behind", 0.5, 0.6, 0.7), "klog.io.write=buffered", "reaches 0.60"),
        (appends("buffered", 0.1, 0.85, 1), "batches of 64 KiB and more", "85% of the best rate"),
        (
            [result("random read of 64 KiB", "cold", 1, 0.01)],
            "enough memory for data that is read often",
            "100 times as long",
        ),
    ],
)
def test_each_setting_has_its_reason(results: list[Result], setting: str, reason: str) -> None:
    found = [advice for advice in recommend(results) if advice.setting == setting]
    assert len(found) == 1, recommend(results)
    assert reason in found[0].reason


def test_there_is_no_advice_without_a_measurement() -> None:
    assert recommend([]) == []
    assert recommend([result("random read of 64 KiB", "cold", 1, 0.9)]) == []


def test_ratios_compare_results_of_one_round() -> None:
    """Noise that affects a whole round does not change the ratio."""
    rounds = [{"a": {"MB/s": 100.0}, "b": {"MB/s": 200.0}}, {"a": {"MB/s": 10.0}, "b": {"MB/s": 20.0}},
              {"a": {"MB/s": 50.0}, "b": {"MB/s": 50.0}}]  # fmt: skip
    first, second = summed_up("append", rounds, {"b": {"klog.io.write": "direct"}})
    assert (first.ratio, first.value, first.settings) == (1, 50, {})
    assert (second.ratio, second.ratio_min, second.value, second.rounds) == (2, 1, 50, 3)
    assert second.settings == {"klog.io.write": "direct"}


def test_shorter_times_are_better_and_maxima_are_maximized() -> None:
    rounds = [{"a": {"ms": 1.0, "max ms": 3.0}, "b": {"ms": 4.0, "max ms": 9.0}}] * 2
    rounds[1] = {"a": {"ms": 1.0, "max ms": 5.0}, "b": {"ms": 4.0, "max ms": 4.0}}
    first, second = summed_up("read", rounds, {}, less_is_better=True)
    assert (second.ratio, second.figures["max ms"], first.figures["max ms"]) == (0.25, 9, 5)
