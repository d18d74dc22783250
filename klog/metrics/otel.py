"""opentelemetry(): the samples as observable instruments of OpenTelemetry, which its exporters collect periodically.

A meter or counter is an observable counter, a gauge an observable gauge; a timer is a counter .count, a counter .sum in
milliseconds, and a gauge with the attribute quantile. Names are those of prometheus(), with dots for the parts, so that
OpenTelemetry's exporter to Prometheus gives the counters and gauges the same names.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from klog import extras
from klog.arguments import having, instance
from klog.errors import KlogError
from klog.manager import LogManager
from klog.metrics.names import DEFINITIONS, Definition
from klog.metrics.prometheus import QUANTILES
from klog.metrics.samples import Sample, snapshot

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

    Callback = Callable[[CallbackOptions], Iterable[Observation]]
_FRESH_SECONDS = 0.5  # the callbacks of one collection share a snapshot


def opentelemetry(logs: LogManager, meter: Meter | None = None) -> Meter:
    """Register every metric with an OpenTelemetry meter, by default that of the global provider named "klog". Returns
    the meter. It does not keep the manager alive, and reports nothing once the manager is deleted.

    Call it once for each manager and meter. Raises TypeError, ImportError without the extra: pip install 'klog[otel]'.
    """
    instance("logs", logs, LogManager, "a klog.LogManager")
    if meter is None:
        try:
            from opentelemetry.metrics import get_meter
        except ImportError as error:
            raise extras.missing("klog.metrics.opentelemetry()", "OpenTelemetry", "otel", error) from error
        meter = get_meter("klog")
    methods = ("create_observable_counter", "create_observable_gauge")
    having("meter", meter, methods, "a Meter of OpenTelemetry")
    bridge = _Bridge(logs)
    for definition in DEFINITIONS:
        bridge.register(definition, meter)
    return meter


def instrument_name(definition: Definition) -> str:
    """Return the name of the instrument, without .count and .sum of a timer."""
    name = definition.name.removesuffix("PerSec") if definition.kind == "meter" else definition.name
    return re.sub(r"[^a-z0-9_.]", "_", f"{definition.domain}.{definition.type}.{name}".lower())


class _Bridge:
    """The callbacks of one manager. It does not keep the manager alive."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = weakref.ref(logs)
        self._taken: tuple[float, dict[str, list[Sample]]] | None = None

    def register(self, definition: Definition, meter: Meter) -> None:
        name, key = instrument_name(definition), f"{definition.type}.{definition.name}"
        if definition.kind == "gauge":
            meter.create_observable_gauge(name, [self._callback(key, _value)], description=definition.help)
        elif definition.kind == "timer":
            meter.create_observable_counter(f"{name}.count", [self._callback(key, _count)], description=definition.help)
            meter.create_observable_counter(
                f"{name}.sum", [self._callback(key, _sum)], unit="ms", description=definition.help
            )
            meter.create_observable_gauge(
                name, [self._callback(key, _quantiles)], unit="ms", description=definition.help
            )
        else:
            meter.create_observable_counter(name, [self._callback(key, _count)], description=definition.help)

    def _callback(self, key: str, observe: Callable[[Sample], Iterator[tuple[float, dict[str, str]]]]) -> Callback:
        def call(_options: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            for sample in self._samples().get(key, ()):
                for value, more in observe(sample):
                    yield Observation(value, {**sample.tags, **more})

        return call

    def _samples(self) -> dict[str, list[Sample]]:
        logs = self._logs()
        if logs is None:
            return {}
        now = logs.clock.monotonic()
        if self._taken is None or not 0 <= now - self._taken[0] < _FRESH_SECONDS:
            found: dict[str, list[Sample]] = {}
            try:
                for sample in snapshot(logs):
                    found.setdefault(f"{sample.type}.{sample.name}", []).append(sample)
            except (
                KlogError,
                OSError,
            ):  # otherwise the exporter would drop all metrics
                found = {}
            self._taken = now, found
        return self._taken[1]


def _value(sample: Sample) -> Iterator[tuple[float, dict[str, str]]]:
    yield sample.attributes["Value"], {}


def _count(sample: Sample) -> Iterator[tuple[float, dict[str, str]]]:
    yield sample.attributes["Count"], {}


def _sum(sample: Sample) -> Iterator[tuple[float, dict[str, str]]]:
    yield sample.attributes["Mean"] * sample.attributes["Count"], {}


def _quantiles(sample: Sample) -> Iterator[tuple[float, dict[str, str]]]:
    for attribute, quantile in QUANTILES.items():
        yield sample.attributes[attribute], {"quantile": quantile}
