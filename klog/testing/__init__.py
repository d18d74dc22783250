"""testing: a broker for tests of programs that use Kafka.

  TestBroker    a broker in this process, on a free port, with faults on demand
  Fault         a fault that it applies, with the number of requests that have matched it
  replay        sends the requests that a TestBroker has recorded to any broker; Replayed is one of them

klog.testing.pytest_plugin has the pytest fixture klog_broker, which needs no configuration.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from klog.testing.broker import TestBroker
    from klog.testing.faults import Fault
    from klog.testing.replaying import Replayed, replay

__all__ = ["Fault", "Replayed", "TestBroker", "replay"]
_PLACES = {
    "Fault": "klog.testing.faults",
    "Replayed": "klog.testing.replaying",
    "TestBroker": "klog.testing.broker",
    "replay": "klog.testing.replaying",
}


def __getattr__(name: str) -> Any:  # every run of pytest imports this package for its plugin
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
