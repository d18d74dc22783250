"""admin: topics, configurations, log directories and the cluster, as admin clients see and change them.

  AdminApis    all of it for one broker: handlers(), start(), close()

Kafka: ControllerApis, ConfigAdminManager, ReplicationControlManager.
"""

from klog.broker.admin.apis import AdminApis

__all__ = ["AdminApis"]


def __dir__() -> list[str]:
    return sorted(__all__)
