"""admin: topics, configurations, log directories and the cluster, as admin clients see and change them.

  AdminApis    all of it for one broker: handlers(), start(), close()
  SLOW         the APIs whose requests may wait for disks, and so must not be handled in a network thread

Kafka: ControllerApis, ConfigAdminManager, ReplicationControlManager.
"""

from klog.broker.admin.apis import SLOW, AdminApis

__all__ = ["SLOW", "AdminApis"]


def __dir__() -> list[str]:
    return sorted(__all__)
