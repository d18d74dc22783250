"""Metrics of a LogManager for monitoring systems, under the names of Kafka's MBeans. Takes a LogManager, returns
samples or text for Prometheus, or registers instruments with OpenTelemetry.

API: snapshot, Sample; prometheus; opentelemetry. docs/metrics.md lists the names.
"""

from klog.metrics.otel import opentelemetry
from klog.metrics.prometheus import prometheus
from klog.metrics.samples import Sample, snapshot

__all__ = ["Sample", "opentelemetry", "prometheus", "snapshot"]


def __dir__() -> list[str]:
    return sorted(__all__)
