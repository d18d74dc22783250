"""The types of a record's timestamp."""

from enum import IntEnum


class TimestampType(IntEnum):
    """Kafka: TimestampType. In a batch it is attribute bit 3; only magic 0, which has no timestamps, has no type."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1
