"""A histogram of durations: count, mean, percentiles and maximum, in fixed memory.

A percentile is at most 12.5 % too high; count, mean and maximum are exact. Histograms can be added up: a manager
reports the sum of all its logs. Kafka: the Timer of KafkaMetricsGroup.
"""

from __future__ import annotations

from klog.durations import Durations


class Histogram(Durations):
    """Durations of one operation. Any thread."""

    __slots__ = ()

    def metrics(self, name: str) -> dict[str, float]:
        """The values in milliseconds, under the attribute names of Kafka's timers."""
        return {f"{name}{attribute}": value for attribute, value in self.attributes().items()}

    def attributes(self) -> dict[str, float]:
        """Count, and Mean, 50thPercentile, 99thPercentile and Max in milliseconds."""
        return {
            "Count": self.count,
            "Mean": self.total / self.count * 1000 if self.count else 0.0,
            "50thPercentile": self.percentile(50) * 1000,
            "99thPercentile": self.percentile(99) * 1000,
            "Max": self.longest * 1000,
        }
