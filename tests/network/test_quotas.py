"""Rates, counts and configuration, without sockets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from klog.clock import ManualClock
from klog.errors import InvalidConfig
from klog.network import Listener, NetworkConfig
from klog.network.notices import Notices
from klog.network.quotas import ConnectionQuotas
from klog.network.rates import Rate


def test_a_rate_counts_all_its_windows_from_the_first_event_on() -> None:
    """The rate is divided by ten windows of a second from the start, so that a burst at the start does not exceed the
    quota."""
    rate = Rate(bound=5, windows=11, seconds=1.0)
    for _ in range(50):
        rate.record(100.0)
    assert rate.value(100.0) == 5.0
    assert rate.excess_seconds(100.0) == 0.0
    rate.record(100.0, 5)
    assert rate.value(100.0) == 5.5
    assert rate.excess_seconds(100.0) == 1.0, "at most one window"
    assert rate.value(105.0) == 5.5
    assert rate.value(110.9) == pytest.approx(55 / 10.9)
    assert rate.value(111.0) == 0.0
    rate.record(200.0, 2)
    rate.record(200.0, -1)
    assert rate.value(200.0) == pytest.approx(0.1)


def test_the_delay_of_a_small_excess_is_shorter_than_a_window() -> None:
    rate = Rate(bound=100, windows=2, seconds=1.0)
    rate.record(0.0, 110)
    assert rate.excess_seconds(0.0) == pytest.approx(0.1)


def test_an_address_that_is_not_counted_cannot_be_removed() -> None:
    listener = Listener(port=9092)
    quotas = ConnectionQuotas([listener], NetworkConfig(max_connections_per_ip=1), ManualClock())
    assert quotas.add(listener, "10.0.0.1")
    assert not quotas.add(listener, "10.0.0.1")
    assert quotas.add(listener, "10.0.0.2")
    assert quotas.count() == quotas.count(listener) == 2
    quotas.remove(listener, "10.0.0.1")
    with pytest.raises(ValueError, match=r"10\.0\.0\.1"):
        quotas.remove(listener, "10.0.0.1")
    assert quotas.add(listener, "10.0.0.1")


def test_rates_of_addresses_are_forgotten_the_oldest_first() -> None:
    listener = Listener(port=9092)
    config = NetworkConfig(connection_creation_rate_per_ip=1, quota_window_num=2)
    quotas = ConnectionQuotas([listener], config, ManualClock())
    assert quotas.address_delay("first") == 0
    assert quotas.address_delay("first") > 0
    for number in range(10_000):
        assert quotas.address_delay(str(number)) == 0
    assert quotas.address_delay("first") == 0
    assert quotas.address_delay("9999") > 0


def test_properties_by_kafkas_names() -> None:
    config = NetworkConfig.of(
        {
            "num.network.threads": "3",
            "max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7",
            "connections.max.idle.ms": 8,
            "log.dirs": "/not/of/the/network",
        }
    )
    assert (config.num_network_threads, config.num_io_threads) == (3, 8)
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 5, "::1": 7}
    assert config.sweep_seconds == 0.01
    assert NetworkConfig().sweep_seconds == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.network.thread", 3), ("num.io.threads", "many"), ("max.connections.per.ip.overrides", "127.0.0.1")],
)
def test_properties_that_are_wrong(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=name):
        NetworkConfig.of({name: value})


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"num_io_threads": 0}, ValueError),
        ({"num_io_threads": True}, TypeError),
        ({"quota_window_num": 1}, ValueError),
        ({"max_connections": "5"}, TypeError),
        ({"max_connections_per_ip_overrides": "127.0.0.1:5"}, TypeError),
        ({"max_connections_per_ip_overrides": {"127.0.0.1": -1}}, ValueError),
    ],
    ids=str,
)
def test_fields_that_are_wrong(named: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(named))):
        NetworkConfig(**named)


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"port": 65536}, ValueError),
        ({"port": "9092"}, TypeError),
        ({"host": 5}, TypeError),
        ({"max_connections": 0}, ValueError),
        ({"protected": 1}, TypeError),
    ],
    ids=str,
)
def test_listeners_that_are_wrong(named: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(named))):
        Listener(**named)


def test_at_most_one_line_a_second_of_each_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    notices = Notices(clock)
    with caplog.at_level(logging.WARNING, "klog.network"):
        for _ in range(100):
            notices.warn("frame_refused", size=5)
            notices.error("handler_failed", LookupError("planted"))
        clock.advance(1_000)
        notices.warn("frame_refused", size=6)
    assert [record.getMessage() for record in caplog.records] == [
        "event=frame_refused size=5 left_out=0",
        "event=handler_failed  left_out=0",
        "event=frame_refused size=6 left_out=99",
    ]
