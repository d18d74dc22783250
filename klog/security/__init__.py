"""security: who a client is and what it may do. Takes SASL messages and requests, returns principals and decisions.

Context, Topics    what a handler sees of its client and of the broker's topics
"""

from klog.security.context import Context, Topics

__all__ = ["Context", "Topics"]


def __dir__() -> list[str]:
    return sorted(__all__)
