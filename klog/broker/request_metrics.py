"""What requests of each API cost. Kafka: RequestMetrics.

Times are in seconds of the monotonic clock inside, milliseconds in metrics(). Local time is that of the handler's call,
remote time what a request waits after it, such as a fetch in the purgatory. The network notes the last three: what a
response waits for its network thread, what sending it takes, and the whole, once the socket has taken all of it.
Errors are counted as in Kafka, each error code of a response: of each partition, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.histogram import Histogram
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klog.protocol import ApiKey

_TIMES = (
    "RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs", "ThrottleTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs",
    "TotalTimeMs",
)  # fmt: skip
_ERRORS = {int(code): code.name for code in ErrorCode}


class ApiMetrics:
    """The histograms and counters of one API. Any thread."""

    __slots__ = (
        "bytes_in", "errors", "local", "queue", "remote", "requests", "response_queue", "response_send", "throttle",
        "total",
    )  # fmt: skip

    def __init__(self) -> None:
        self.queue, self.local, self.remote, self.throttle = Histogram(), Histogram(), Histogram(), Histogram()
        self.response_queue, self.response_send, self.total = Histogram(), Histogram(), Histogram()
        self.requests: dict[int, int] = {}  # by version
        self.bytes_in = 0
        self.errors: dict[str, int] = {}

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the errors of a response."""
        for code in codes:
            name = _ERRORS.get(code) or str(code)  # a response that a test gives may have any
            self.errors[name] = self.errors.get(name, 0) + 1

    def times(self) -> dict[str, Histogram]:
        """The histograms, by Kafka's names."""
        response = (self.response_queue, self.response_send, self.total)
        return dict(zip(_TIMES, (self.queue, self.local, self.remote, self.throttle, *response), strict=True))

    def metrics(self, name: str) -> dict[str, float]:
        """Under Kafka's names, with the API's name after a dot."""
        found: dict[str, float] = {
            f"RequestsPerSecCount.{name}": sum(self.requests.values()),
            f"ErrorsPerSecCount.{name}": sum(self.errors.values()),
            f"RequestBytes.{name}": self.bytes_in,
        }
        for version, count in list(self.requests.items()):
            found[f"RequestsPerSecCount.{name}.{version}"] = count
        for error, count in list(self.errors.items()):
            found[f"ErrorsPerSecCount.{name}.{error}"] = count
        for kind, times in self.times().items():
            found |= {f"{key}.{name}": value for key, value in times.metrics(kind).items()}
        return found


class RequestMetrics:
    """Of all APIs that have been used. Any thread."""

    def __init__(self) -> None:
        self._apis: dict[ApiKey, ApiMetrics] = {}

    def of(self, api: ApiKey) -> ApiMetrics:
        """Those of one API."""
        found = self._apis.get(api)
        if found is None:
            found = self._apis.setdefault(api, ApiMetrics())
        return found

    def all(self) -> dict[ApiKey, ApiMetrics]:
        """Those of each API that has been used."""
        return dict(self._apis)

    def metrics(self) -> dict[str, float]:
        """All values."""
        found: dict[str, float] = {}
        for api, each in list(self._apis.items()):
            found |= each.metrics(api.message)
        return found
