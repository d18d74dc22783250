"""The state in the files of klog's broker, which are in the first log.dir, as records of Kafka's metadata.

    klog-users.json    user_scram_credential_record          klog-acls.json     access_control_entry_record
    klog-quotas.json   client_quota_record                   klog-broker.json   config_record of broker and groups

Each file is read by the package that owns it. Kafka: ScramControlManager, AclControlManager, ClientQuotaControlManager,
ConfigurationControlManager.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Final

from klog.broker.admin import dynamic_configs
from klog.broker.settings import BROKER_FILE
from klog.clock import SystemClock
from klog.disk import Files
from klog.handover.cluster import config_records
from klog.handover.records import MetadataRecord
from klog.security import Authorizer, ClientQuotas, SecurityConfig, Users
from klog.security.acl_types import Acl, AclFilter
from klog.security.config import AUTHORIZER
from klog.security.scram import MECHANISMS

_ACL_IDS: Final = uuid.UUID("6a4f4e2c-5a54-4d1e-9b0d-4b0d6f2f6c11")  # the namespace of UUIDs made from rules


def broker_records(directory: str, node_id: int, files: Files) -> list[MetadataRecord]:
    """Return the records. directory: the first log.dir. Raises CorruptCheckpoint, NewerFormat, OSError."""
    return [
        *_users(directory, files),
        *_acls(directory, files),
        *_quotas(directory, files),
        *_configs(directory, node_id),
    ]


def _users(directory: str, files: Files) -> Iterator[MetadataRecord]:
    users = Users(directory, files)
    for user in users.names():
        for name, credential in sorted(users.of(user).items()):
            fields = {
                "name": user,
                "mechanism": MECHANISMS[name].number,
                "salt": credential.salt,
                "stored_key": credential.stored_key,
                "server_key": credential.server_key,
                "iterations": credential.iterations,
            }
            yield MetadataRecord("user_scram_credential_record", 0, fields)


def _acls(directory: str, files: Files) -> Iterator[MetadataRecord]:
    config = SecurityConfig.of({"authorizer.class.name": AUTHORIZER})
    for acl in Authorizer(directory, config, files).find(AclFilter()):
        fields = {
            "id": _acl_id(acl),
            "resource_type": int(acl.resource_type),
            "resource_name": acl.name,
            "pattern_type": int(acl.pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": int(acl.operation),
            "permission_type": int(acl.permission),
        }
        yield MetadataRecord("access_control_entry_record", 0, fields)


def _acl_id(acl: Acl) -> uuid.UUID:
    """Return the same id for the same rule, so that a repeated handover has the same records."""
    parts = (acl.resource_type, acl.pattern_type, acl.name, acl.principal, acl.host, acl.operation, acl.permission)
    return uuid.uuid5(_ACL_IDS, "\0".join(map(str, parts)))


def _quotas(directory: str, files: Files) -> Iterator[MetadataRecord]:
    quotas = ClientQuotas(directory, SecurityConfig.of({}), SystemClock(), files).quotas()
    for entity, values in quotas.items():
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        for key, value in sorted(values.items()):
            fields = {"entity": named, "key": key, "value": value, "remove": False}
            yield MetadataRecord("client_quota_record", 0, fields)


def _configs(directory: str, node_id: int) -> Iterator[MetadataRecord]:
    broker, default, groups = dynamic_configs.read(os.path.join(directory, BROKER_FILE))
    resources = [("broker", str(node_id), broker), ("broker", "", default)]
    resources += [("group", name, own) for name, own in groups.items()]
    for kind, name, config in resources:
        own = {key: value for key, value in config.items() if not key.startswith("klog.")}
        yield from config_records(kind, name, own)
