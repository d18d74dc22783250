"""Parses the options that only streams have, and the times and numbers in them. Pure.

maxOffsetsPerTrigger, minOffsetsPerTrigger, maxBytesPerTrigger := whole number from 1
maxTriggerDelay      := whole number, with us, ms, s, m, min, h or d; without a unit ms  (Spark: JavaUtils.timeStringAs)
commitGroup          := name of a consumer group
checkpointLocation   := the directory of the query's checkpoint, for the ids of the topics (stream_memory.py)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from klog.spark import values
from klog.spark.limits import DELAY_MS, Limits

LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
STREAM_ONLY = (*LIMITS, "commitGroup", "checkpointLocation")

_DELAY = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def limits(given: Mapping[str, str]) -> Limits:
    """Return the limits of the options, whose keys are in lower case."""
    found = Limits(
        max_offsets=_count(given, "maxOffsetsPerTrigger"),
        max_bytes=_count(given, "maxBytesPerTrigger"),
        min_offsets=_count(given, "minOffsetsPerTrigger"),
        max_delay_ms=_delay(given),
    )
    if found.min_offsets and found.max_offsets and found.min_offsets > found.max_offsets:
        raise ValueError(
            f"option 'minOffsetsPerTrigger' = {found.min_offsets} is above 'maxOffsetsPerTrigger' = "
            f"{found.max_offsets}; lower it"
        )
    return found


def commit_group(given: Mapping[str, str]) -> str | None:
    """Return the name of the consumer group, None without the option."""
    name = given.get("commitgroup")
    if name is None:
        return None
    if not name or len(name.encode("utf-8", "surrogatepass")) > 0x7FFF or not _is_text(name):
        raise ValueError(f"option 'commitGroup' = {name[:80]!r} is not a group name: give 1 to 32,767 bytes of text")
    return name


def checkpoint_directory(given: Mapping[str, str]) -> str | None:
    """Return the local directory of the checkpoint; None without the option, or for another file system."""
    location = given.get("checkpointlocation", "")
    scheme, separator, path = location.partition(":")
    if separator and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        if scheme.lower() != "file":
            return None
        # Not decoded: %20 is three characters of a name for Spark, too (Hadoop's Path).
        return re.sub(r"^//[^/]*", "", path) or None
    return location or None


def _count(given: Mapping[str, str], option: str) -> int | None:
    value = given.get(option.lower())
    return None if value is None else values.count(value, option)


def _delay(given: Mapping[str, str]) -> int:
    value = given.get("maxtriggerdelay")
    if value is None:
        return DELAY_MS
    match = _DELAY.fullmatch(value.strip().lower())
    if match is None or match[2] not in _UNITS_US:
        raise ValueError(f"option 'maxTriggerDelay' must be a time such as '30s', '15m' or '1h', not {value!r}")
    return int(match[1]) * _UNITS_US[match[2]] // 1000


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
