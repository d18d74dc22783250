"""Advises from the figures which `klog.io.*` keys and which durability suit this disk, and why. It reads nothing else.

A setting other than the default is advised only if the difference is larger than the noise. A setting that is not much
slower and keeps the page cache for readers is advised only for bulk loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from klog.trial.report import Advice, Result

APPEND, DURABLE, SEQUENTIAL, RANDOM, SEND = "append", "durable append", "sequential read", "random read", "send"
BUFFERED, NO_BLOCKS, ZEROS = "buffered", "no blocks ahead", "zeros ahead"
WRITE_BEHIND, DONTCACHE, DIRECT = "write-behind", "dontcache", "direct"
HOT, COLD, COLD_AHEAD, COLD_DIRECT = "hot", "cold", "cold, 4 MiB ahead", "cold, direct"
ONE_THREAD = "1 thread"
_NOISE = 1.10
_NEARLY = 0.90
_NO_DISK_MS = 0.05
_QUICK_MS, _SLOW_MS = 2.0, 15.0


def recommend(results: Sequence[Result]) -> list[Advice]:
    """Return advice from these figures, the most important first; none about policies that were not measured."""
    given = [_durability(results), _preallocate(results), _bulk(results), _batches(results)]
    given += [_reads(results), _cold(results)]
    return [advice for advice in given if advice is not None]


def _of(results: Sequence[Result], contest: str, policy: str) -> list[Result]:
    return [one for one in results if one.contest.startswith(contest) and one.way == policy]


def _ratio(results: Sequence[Result], policy: str) -> float | None:
    """Return the median ratio of a policy of appending to the default, over all batch sizes."""
    ratios = [one.ratio for one in _of(results, APPEND, policy)]
    return median(ratios) if ratios else None


def _durability(results: Sequence[Result]) -> Advice | None:
    alone = _of(results, DURABLE, ONE_THREAD)
    if not alone:
        return None
    ms = alone[0].figures["p50 ms"]
    best = max((one for one in results if one.contest.startswith(DURABLE)), key=lambda one: one.value)
    together = f"{best.way} reach {best.value:,.0f} a second"
    if ms < _NO_DISK_MS:
        return Advice(
            'durability="os"',
            f"a durable append takes {ms:.3f} ms, less than a disk needs: this is memory, or a disk that does not "
            f"flush. Here sync is no safer",
        )
    if ms < _QUICK_MS:
        return Advice(
            'durability="sync"',
            f"a durable append takes {ms:.2f} ms, so a power loss costs no acknowledged record; {together}",
        )
    if ms < _SLOW_MS:
        return Advice(
            'durability="sync" with several appending threads, or "interval"',
            f"a durable append takes {ms:.1f} ms alone, but threads share one flush: {together}",
        )
    return Advice(
        'durability="interval" with flush.ms=1000',
        f"a durable append takes {ms:.0f} ms: too slow to wait for each; a power loss costs about a second of records",
    )


def _preallocate(results: Sequence[Result]) -> Advice | None:
    ratios = {"none": _ratio(results, NO_BLOCKS), "zeros": _ratio(results, ZEROS)}
    known = {value: ratio for value, ratio in ratios.items() if ratio is not None}
    if not known:
        return None
    value, ratio = max(known.items(), key=lambda item: item[1])
    slowest = min(one.ratio_min for one in _of(results, APPEND, NO_BLOCKS if value == "none" else ZEROS))
    if ratio >= _NOISE and slowest >= _NEARLY:
        return Advice(f"klog.io.preallocate={value}", f"{ratio:.2f} times the default's rate until the data is on disk")
    return Advice(
        "klog.io.preallocate=steps", "the default: no other value is always faster, and its files are contiguous"
    )


def _bulk(results: Sequence[Result]) -> Advice | None:
    settings = {
        WRITE_BEHIND: "klog.io.write.behind.bytes=268435456",
        DONTCACHE: "klog.io.write=dontcache",
        DIRECT: "klog.io.write=direct",
    }
    ratios = {policy: _ratio(results, policy) for policy in settings}
    known = {policy: ratio for policy, ratio in ratios.items() if ratio is not None}
    if not known:
        return None
    policy, ratio = max(known.items(), key=lambda item: item[1])
    if ratio < _NEARLY:
        return Advice(
            "klog.io.write=buffered",
            f"for bulk loads too: the fastest policy without the page cache, {policy}, reaches {ratio:.2f} of its rate",
        )
    return Advice(
        f"{settings[policy]} for bulk loads",
        f"{ratio:.2f} of the buffered rate, and the page cache is kept for readers",
    )


def _batches(results: Sequence[Result]) -> Advice | None:
    plain = [one for one in results if one.contest.startswith(APPEND) and one.way == BUFFERED]
    if len(plain) < 2:
        return None
    best = max(one.value for one in plain)
    enough = next(one for one in plain if one.value >= 0.8 * best)  # in the order of size
    size = enough.contest.removeprefix(APPEND).strip()
    return Advice(
        f"batches of {size} and more", f"they reach {enough.value / best:.0%} of the best rate, {best:,.0f} MB/s"
    )


def _reads(results: Sequence[Result]) -> Advice | None:
    settings = {COLD_AHEAD: "klog.io.read.ahead.bytes=4194304", COLD_DIRECT: "klog.io.read=direct"}
    cold = _of(results, SEQUENTIAL, COLD)
    others = [one for policy in settings for one in _of(results, SEQUENTIAL, policy)]
    if not cold or not others:
        return None
    best = max(others, key=lambda one: one.value)
    if best.value < _NOISE * cold[0].value:
        return None
    return Advice(
        f"{settings[best.way]} for logs that are scanned cold",
        f"{best.value / cold[0].value:.2f} times the rate of the kernel's own read-ahead",
    )


def _cold(results: Sequence[Result]) -> Advice | None:
    cold = _of(results, RANDOM, COLD)
    if not cold or cold[0].ratio > 1 / 3:
        return None
    return Advice(
        "enough memory for data that is read often",
        f"a random read from the disk takes {1 / cold[0].ratio:,.0f} times as long as one from the page cache",
    )
