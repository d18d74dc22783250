"""prometheus(): the samples as text for Prometheus, under the names that the JMX exporter's rules make of MBeans.

    gauge    kafka.log:type=Log,name=Size,topic=t        kafka_log_log_size{topic="t"}
    meter    kafka.server:type=BrokerTopicMetrics,
             name=BytesInPerSec                          kafka_server_brokertopicmetrics_bytesin_total
    timer    kafka.log:type=LogFlushStats,
             name=LogFlushRateAndTimeMs                  kafka_log_logflushstats_logflushrateandtimems{quantile="0.99"},
                                                         ..._count, ..._sum

The rates of meters are left out: rate() of Prometheus computes them. The text format 0.0.4 is lines of a name, labels
and a number, so no library is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from klog.manager import LogManager
from klog.metrics.samples import Measured, Sample, snapshot

QUANTILES = {"50thPercentile": "0.50", "99thPercentile": "0.99"}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus(logs: LogManager | Measured, *, page_cache: bool = False) -> str:
    """Return the metrics of a LogManager or a klog.Broker in Prometheus' text format 0.0.4.

    Serve it as `text/plain; version=0.0.4`.

    page_cache: see snapshot(). Raises TypeError.
    """
    families: dict[str, list[Sample]] = {}
    for sample in snapshot(logs, page_cache=page_cache):
        families.setdefault(metric_name(sample), []).append(sample)
    return "".join(line + "\n" for name, samples in families.items() for line in _family(name, samples))


def metric_name(sample: Sample) -> str:
    """Return the name in Prometheus; that of a timer without _count and _sum."""
    name = sample.name.removesuffix("PerSec") if sample.kind == "meter" else sample.name
    total = "_total" if sample.kind in ("meter", "counter") else ""
    return re.sub(r"[^a-z0-9_]", "_", f"{sample.domain}_{sample.type}_{name}{total}".lower())


def _family(name: str, samples: Iterable[Sample]) -> Iterator[str]:
    for number, sample in enumerate(samples):
        if number == 0:
            kind = {"gauge": "gauge", "timer": "summary"}.get(sample.kind, "counter")
            yield f"# HELP {name} {sample.help} ({sample.domain}:type={sample.type},name={sample.name})"
            yield f"# TYPE {name} {kind}"
        values = sample.attributes
        if sample.kind == "timer":
            for attribute, quantile in QUANTILES.items():
                yield f"{name}{_labels({**sample.tags, 'quantile': quantile})} {values[attribute]}"
            yield f"{name}_sum{_labels(sample.tags)} {values['Mean'] * values['Count']}"
            yield f"{name}_count{_labels(sample.tags)} {values['Count']}"
        else:
            yield f"{name}{_labels(sample.tags)} {values['Value' if sample.kind == 'gauge' else 'Count']}"


def _labels(tags: Mapping[str, str]) -> str:
    if not tags:
        return ""
    return "{" + ",".join(f'{tag}="{value.translate(_ESCAPES)}"' for tag, value in tags.items()) + "}"
