"""security: who a client is and what it may do. Takes SASL messages and requests, returns principals and decisions.

  Context, Topics          what a handler sees of its client and of the broker's topics
  SecurityConfig           Kafka's properties
  Sasl, Users              who a client is: the exchange with it, and the keys of users
  Authorizer               what it may do: access rules
  ClientQuotas             how fast

Users, Authorizer and ClientQuotas each have a file of their own in the first log.dir, and the handlers of the requests
that read and change it; those that change it wait for the disk.
"""

from typing import TYPE_CHECKING

from klog import lazy

if TYPE_CHECKING:
    from klog.security.acls import Authorizer, authorized_operations
    from klog.security.config import SecurityConfig
    from klog.security.context import Context, Topics
    from klog.security.quotas import ClientQuotas
    from klog.security.sasl import Outcome, Sasl, SaslSession, allowed_before_authentication
    from klog.security.users import Users

_PLACES = {
    "Authorizer": "acls",
    "ClientQuotas": "quotas",
    "Context": "context",
    "Outcome": "sasl",
    "Sasl": "sasl",
    "SaslSession": "sasl",
    "SecurityConfig": "config",
    "Topics": "context",
    "Users": "users",
    "allowed_before_authentication": "sasl",
    "authorized_operations": "acls",
}
__all__ = [
    "Authorizer",
    "ClientQuotas",
    "Context",
    "Outcome",
    "Sasl",
    "SaslSession",
    "SecurityConfig",
    "Topics",
    "Users",
    "allowed_before_authentication",
    "authorized_operations",
]


def __dir__() -> list[str]:
    return sorted(__all__)


__getattr__ = lazy.attributes(globals(), _PLACES)
