"""testing: a broker for tests of programs that use Kafka.

  TestBroker    a broker in this process, on a free port, with faults on demand
  Fault         a fault that it applies, with the number of requests that have matched it
  replay        sends the requests that a TestBroker has recorded to any broker; Replayed is one of them

klog.testing.pytest_plugin has the pytest fixture klog_broker, which needs no configuration.
"""

from __future__ import annotations

from klog import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.testing.broker import TestBroker
    from klog.testing.faults import Fault
    from klog.testing.replaying import Replayed, replay

__all__ = ["Fault", "Replayed", "TestBroker", "replay"]
_PLACES = {
    "Fault": "faults",
    "Replayed": "replaying",
    "TestBroker": "broker",
    "replay": "replaying",
}


__getattr__ = lazy.attributes(globals(), _PLACES)  # every run of pytest imports this package for its plugin


def __dir__() -> list[str]:
    return sorted(__all__)
