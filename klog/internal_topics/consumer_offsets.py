"""The records of __consumer_offsets: committed offsets, and groups with their members.

    key    := type:i16 field*       the types are those of TYPES; never flexible
    value  := version:i16 field*    null: a tombstone

A member of a classic group of the protocol type `consumer` has its subscription and assignment in the consumers' own
format, which the broker does not read: version:i16 field*, never flexible.
Kafka: CoordinatorRecordType of the group coordinator (4.3); ConsumerProtocolSubscription, ConsumerProtocolAssignment.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.schema import Cursor, Fields, message, read
from klog.internal_topics.tables import KeyedType

TOPIC: Final = "__consumer_offsets"

_GROUP: Final = "group_id:string"
_MEMBER: Final = "group_id:string member_id:string"
_OFFSET: Final = "group:string topic:string partition:int32"
_PARTITIONS: Final = "[{topic_id:uuid partitions:[int32] assignment_epochs:[int32]#0}]"
_ASSIGNED: Final = "[{topic_id:uuid partitions:[int32]}]"
_TASKS: Final = "[{subtopology_id:string partitions:[int32] assignment_epochs:[int32]#0}]"
_TARGET_TASKS: Final = "[{subtopology_id:string partitions:[int32]}]"
_PAIRS: Final = "[{key:string value:string}]"
_TOPICS: Final = f"[{{name:string partitions:int32 replication_factor:int16 topic_configs:{_PAIRS}}}]"
_STATE: Final = "member_epoch:int32 previous_member_epoch:int32 state:int8"
_TARGET: Final = "assignment_epoch:int32 assignment_timestamp:int64#0"
_NEVER: Final = 99

TYPES: Final[dict[int, KeyedType]] = {
    0: KeyedType(
        "legacy_offset_commit",
        _OFFSET,
        message(
            """offset:int64 leader_epoch:int32@3+ metadata:string commit_timestamp:int64 expire_timestamp:int64@1
            topic_id:uuid@4+#0""",
            latest=4,
            flexible=4,
        ),
    ),
    1: KeyedType(
        "offset_commit",
        _OFFSET,
        message(
            """offset:int64 leader_epoch:int32@3+ metadata:string commit_timestamp:int64 expire_timestamp:int64@1
            topic_id:uuid@4+#0""",
            latest=4,
            flexible=4,
        ),
    ),
    2: KeyedType(
        "group_metadata",
        "group:string",
        message(
            """protocol_type:string generation:int32 protocol:string leader:string current_state_timestamp:int64@2+
            members:[{member_id:string group_instance_id:string@3+ client_id:string client_host:string
            rebalance_timeout:int32@1+ session_timeout:int32 subscription:bytes assignment:bytes}]""",
            latest=4,
            flexible=4,
        ),
    ),
    3: KeyedType("consumer_group_metadata", _GROUP, message("epoch:int32 metadata_hash:int64#0")),
    4: KeyedType(
        "consumer_group_partition_metadata",
        _GROUP,
        message(
            """topics:[{topic_id:uuid topic_name:string num_partitions:int32
            partition_metadata:[{partition:int32 racks:[string]}]}]"""
        ),
    ),
    5: KeyedType(
        "consumer_group_member_metadata",
        _MEMBER,
        message(
            """instance_id:string rack_id:string client_id:string client_host:string subscribed_topic_names:[string]
            subscribed_topic_regex:string rebalance_timeout_ms:int32 server_assignor:string
            classic_member_metadata:?{session_timeout_ms:int32 supported_protocols:[{name:string metadata:bytes}]}#0"""
        ),
    ),
    6: KeyedType("consumer_group_target_assignment_metadata", _GROUP, message(_TARGET)),
    7: KeyedType("consumer_group_target_assignment_member", _MEMBER, message(f"topic_partitions:{_ASSIGNED}")),
    8: KeyedType(
        "consumer_group_current_member_assignment",
        _MEMBER,
        message(f"{_STATE} assigned_partitions:{_PARTITIONS} partitions_pending_revocation:{_PARTITIONS}"),
    ),
    10: KeyedType(
        "share_group_member_metadata",
        _MEMBER,
        message("rack_id:string client_id:string client_host:string subscribed_topic_names:[string]"),
    ),
    11: KeyedType("share_group_metadata", _GROUP, message("epoch:int32 metadata_hash:int64")),
    12: KeyedType("share_group_target_assignment_metadata", _GROUP, message(_TARGET)),
    13: KeyedType("share_group_target_assignment_member", _MEMBER, message(f"topic_partitions:{_ASSIGNED}")),
    14: KeyedType(
        "share_group_current_member_assignment", _MEMBER, message(f"{_STATE} assigned_partitions:{_ASSIGNED}")
    ),
    15: KeyedType(
        "share_group_state_partition_metadata",
        _GROUP,
        message(
            """initializing_topics:[{topic_id:uuid topic_name:string partitions:[int32]}]
            initialized_topics:[{topic_id:uuid topic_name:string partitions:[int32]}]
            deleting_topics:[{topic_id:uuid topic_name:string}]"""
        ),
    ),
    16: KeyedType(
        "consumer_group_regular_expression",
        "group_id:string regular_expression:string",
        message("topics:[string] version:int64 timestamp:int64"),
    ),
    17: KeyedType(
        "streams_group_metadata",
        _GROUP,
        message(
            f"""epoch:int32 metadata_hash:int64 validated_topology_epoch:int32#0
            last_assignment_configs:{_PAIRS}#1"""
        ),
    ),
    19: KeyedType(
        "streams_group_member_metadata",
        _MEMBER,
        message(
            f"""instance_id:string rack_id:string client_id:string client_host:string rebalance_timeout_ms:int32
            topology_epoch:int32 process_id:string user_endpoint:?{{host:string port:uint16}} client_tags:{_PAIRS}"""
        ),
    ),
    20: KeyedType("streams_group_target_assignment_metadata", _GROUP, message(_TARGET)),
    21: KeyedType(
        "streams_group_target_assignment_member",
        _MEMBER,
        message(f"active_tasks:{_TARGET_TASKS} standby_tasks:{_TARGET_TASKS} warmup_tasks:{_TARGET_TASKS}"),
    ),
    22: KeyedType(
        "streams_group_current_member_assignment",
        _MEMBER,
        message(
            f"""{_STATE} active_tasks:{_TASKS} standby_tasks:{_TASKS} warmup_tasks:{_TASKS}
            active_tasks_pending_revocation:{_TASKS} standby_tasks_pending_revocation:{_TASKS}
            warmup_tasks_pending_revocation:{_TASKS}"""
        ),
    ),
    23: KeyedType(
        "streams_group_topology",
        _GROUP,
        message(
            f"""epoch:int32 subtopologies:[{{subtopology_id:string source_topics:[string] source_topic_regex:[string]
            state_changelog_topics:{_TOPICS} repartition_sink_topics:[string] repartition_source_topics:{_TOPICS}
            copartition_groups:[{{source_topics:[int16] source_topic_regex:[int16] repartition_source_topics:[int16]}}]
            }}]"""
        ),
    ),
}

SUBSCRIPTION: Final = message(
    """topics:[string] user_data:bytes owned_partitions:[{topic:string partitions:[int32]}]@1+ generation_id:int32@2+
    rack_id:string@3+""",
    latest=3,
    flexible=_NEVER,
)
ASSIGNMENT: Final = message(
    "assigned_partitions:[{topic:string partitions:[int32]}] user_data:bytes", latest=3, flexible=_NEVER
)


def is_offset_key(key: bytes | None) -> bool:
    """True for the key of a committed offset."""
    return key is not None and key[:2] in (b"\0\0", b"\0\1")


def with_members_decoded(value: Fields) -> Fields:
    """Return a group_metadata value with the members' subscription and assignment as fields.

    Bytes of another form, such as those of Kafka Connect, stay as they are.
    """
    if value["protocol_type"] == "consumer":
        for member in value["members"] or ():
            for name, form in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                data = member[name]
                if data:
                    try:
                        cursor = Cursor(data)
                        version = cursor.number("int16")
                        # A newer version has the known fields first: so do consumers read it.
                        member[name] = {"version": version, **read(cursor, form, min(version, form.latest))}
                    except ValueError:
                        continue
    return value
