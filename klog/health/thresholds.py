"""The checks and their thresholds. A value at or beyond a threshold has that severity.

The mean flush time and the flush rate are those of Kafka's operators' guides and of the specification; the others are
klog's choice. None: this severity does not exist for the check.
"""

from __future__ import annotations

from collections.abc import Mapping

from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One check. unit: of the thresholds. low_is_bad: the thresholds are minima."""

    what: str
    unit: str
    warning: float | None
    critical: float | None
    next_step: str
    low_is_bad: bool = False


CHECKS: Mapping[str, Check] = {
    "disk_space": Check(
        "used share of a log.dir's file system", "ratio", 0.85, 0.95,
        "lower retention.ms or retention.bytes of large topics, move partitions to another log.dir, or add space",
    ),
    "inodes": Check(
        "used share of the file system's inodes", "ratio", 0.85, 0.95,
        "raise segment.bytes so that there are fewer files, or make the file system again with more inodes",
    ),
    "log_directory": Check(
        "log.dirs that are offline", "", None, 1,
        "look for the device's errors in the kernel's log, replace or remount the disk, then open the directory again",
    ),
    "log_readable": Check(
        "logs that cannot be opened; `klog verify` reads the records", "", None, 1,
        "run `klog verify` on the directory; restore the log from a replica or a backup if it is damaged",
    ),
    "cleanable": Check(
        "logs that the cleaner skips after an error", "", 1, None,
        "run `klog verify` on the log; Log.compact() tries again after the repair",
    ),
    "log_end": Check(
        "logs that ended below their recovery point when they were opened", "", None, 1,
        "restore the missing segments or batches from a copy; the next open no longer reports them",
    ),
    "cleaner_threads": Check(
        "cleaner threads that ended unexpectedly", "threads", None, 1,
        "read the log messages of klog.manager for the reason, then restart the process",
    ),
    "flush_time": Check(
        "mean time of a flush", "ms", 100, 1000,
        "run `klog bench disk`; flush less often, or put the log.dir on a faster disk",
    ),
    "flush_rate": Check(
        "flushes per second, mean of five minutes", "1/s", 1000, None,
        "raise flush.messages and flush.ms, or let appends share flushes with durability=\"sync\"",
    ),
    "segments": Check(
        "segments of a log", "segments", 1000, 10_000,
        "raise segment.bytes and segment.ms, or lower the retention: each segment costs files and time at the start",
    ),
    "unflushed_bytes": Check(
        "bytes of a log that are not flushed: a power cut may lose them", "bytes", 2 << 30, None,
        "set flush.ms or klog.flush.bytes, or open with durability=\"interval\"",
    ),
    "timestamps": Check(
        "how far the newest timestamp of a log is in the future", "ms", 3_600_000, None,
        "correct the producers' clocks or this machine's; retention.ms keeps these records until then. "
        "message.timestamp.after.max.ms refuses them",
    ),
    "descriptors": Check(
        "used share of RLIMIT_NOFILE", "ratio", 0.8, 0.95,
        "raise the limit of open files: `ulimit -n`, or LimitNOFILE= of the systemd unit",
    ),
    "maps": Check(
        "used share of vm.max_map_count", "ratio", 0.8, 0.95, "raise it: sysctl -w vm.max_map_count=262144",
    ),
    "file_system": Check(
        "file systems other than ext4, xfs, btrfs, zfs and f2fs", "", 1, None,
        "move the log.dir to a local disk with xfs or ext4",
    ),
    "mount_options": Check(
        "mount options that cost speed or safety", "", 1, 1,
        "change the options in /etc/fstab: rw,noatime, without nobarrier",
    ),
    "io_scheduler": Check(
        "bfq or cfq as I/O scheduler", "", 1, None,
        "use none or mq-deadline: echo none > /sys/block/DEVICE/queue/scheduler",
    ),
    "dirty_pages": Check(
        "dirty pages as a share of the limit at which writers wait", "ratio", 0.8, 1.0,
        "the disk does not keep up: lower vm.dirty_background_ratio so that it begins earlier, or reduce the load",
    ),
    "dirty_background": Check(
        "vm.dirty_background_ratio", "percent", 20, None,
        "sysctl -w vm.dirty_background_ratio=5: shorter flushes, because less is written at once",
    ),
    "swappiness": Check(
        "vm.swappiness of a machine with swap", "percent", 11, None,
        "sysctl -w vm.swappiness=1: the page cache must not push processes out of memory",
    ),
    "memory": Check(
        "available share of the memory", "ratio", 0.10, 0.05,
        "add memory or end other processes: the page cache needs what is free", low_is_bad=True,
    ),
    "page_cache": Check(
        "share of sampled reads that came from memory", "ratio", 0.9, None,
        "`klog cache` shows what is in memory; more memory, or Log.warm_up() before readers start", low_is_bad=True,
    ),
}  # fmt: skip
