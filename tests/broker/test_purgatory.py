"""The purgatory: requests that wait are completed once, or forgotten when their clients have gone."""

from __future__ import annotations

from klog.broker.purgatory import Purgatory
from klog.clock import ManualClock
from klog.scheduler import Scheduler

WEEKS_MS = 2**31 - 1


class Operation:
    def __init__(self) -> None:
        self.tried: list[bool] = []
        self.is_abandoned = False

    def try_complete(self, *, expired: bool) -> bool:
        self.tried.append(expired)
        return expired


def test_requests_whose_clients_have_gone_are_forgotten() -> None:
    clock = ManualClock()
    purgatory = Purgatory(Scheduler(clock))
    goes, stays = Operation(), Operation()
    for each in (goes, stays):
        purgatory.watch(each, [("t", 0), each], WEEKS_MS)
    clock.advance(10_000)
    assert purgatory.size == 2
    goes.is_abandoned = True
    clock.advance(10_000)
    assert (purgatory.size, set(purgatory.watched)) == (1, {("t", 0), stays})
    clock.advance(WEEKS_MS)
    assert (goes.tried, stays.tried) == ([False], [False, True])
    assert not purgatory.watched
    purgatory.watch(goes, [("t", 0)], WEEKS_MS)  # the sweeps begin again
    clock.advance(10_000)
    assert purgatory.size == 0
