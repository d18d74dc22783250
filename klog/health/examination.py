"""examine(): compares facts with the thresholds. It reads and changes nothing else.

A check of logs has one finding for each log that is not ok, at most LOGS_MAX; if all are ok, one with the worst value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from klog.health.engine import Engine, LogFacts
from klog.health.machine import Directory, Machine
from klog.health.report import ORDER, Finding, HealthReport, Severity
from klog.health.thresholds import CHECKS

LOGS_MAX = 20
_LOCAL = ("ext4", "xfs", "btrfs", "zfs", "f2fs")
_UNSAFE, _SLOW = ("nobarrier", "barrier=0", "ro"), ("strictatime", "sync", "dirsync")
_SAMPLED_MIN = 16 << 20
_OF_A_WRITER = ("cleanable", "cleaner_threads", "flush_time", "flush_rate", "unflushed_bytes", "page_cache")


def examine(machine: Machine, engine: Engine) -> HealthReport:
    """Return the findings, the worst first."""
    found = [*_engine(engine), *_logs(engine), *_machine(machine)]
    for directory in machine.directories:
        found += _directory(directory, engine.offline.get(directory.path))
    found.sort(key=lambda finding: ORDER.index(finding.severity))
    made = {finding.check for finding in found}
    unknown = {name: _why_unknown(name, machine, engine) for name in CHECKS if name not in made}
    return HealthReport(found, unknown)


def _severity(check: str, value: float) -> Severity:
    bounds = CHECKS[check]
    for severity, bound in (("critical", bounds.critical), ("warning", bounds.warning)):
        if bound is not None and (value <= bound if bounds.low_is_bad else value >= bound):
            return "critical" if severity == "critical" else "warning"
    return "ok"


def _measured(check: str, subject: str, value: float, message: str) -> Finding:
    """Return the finding of a value that has thresholds."""
    bounds, severity = CHECKS[check], _severity(check, value)
    threshold = bounds.critical if severity == "critical" or bounds.warning is None else bounds.warning
    return Finding(severity, check, subject, message, value, threshold, bounds.next_step if severity != "ok" else "")


def _stated(check: str, subject: str, severity: Severity, message: str) -> Finding:
    """Return the finding of a check without numbers."""
    return Finding(severity, check, subject, message, None, None, CHECKS[check].next_step if severity != "ok" else "")


# ---- the engine ------------------------------------------------------------------------------------------------------


def _engine(engine: Engine) -> Iterator[Finding]:
    if engine.dead_threads is not None:
        message = f"{engine.dead_threads} cleaner threads have ended unexpectedly"
        yield _measured("cleaner_threads", "process", engine.dead_threads, message)
    if engine.flushes:
        message = f"a flush takes {engine.flush_mean_ms:.1f} ms on average, of {engine.flushes}"
        yield _measured("flush_time", "process", engine.flush_mean_ms, message)
    if not engine.read_only:
        yield _measured("flush_rate", "process", engine.flush_rate, f"{engine.flush_rate:.1f} flushes per second")
    if engine.sampled_bytes >= _SAMPLED_MIN:
        ratio = engine.cached_bytes / engine.sampled_bytes
        yield _measured("page_cache", "process", ratio, f"{ratio:.1%} of the sampled reads came from memory")


def _logs(engine: Engine) -> Iterator[Finding]:
    broken = [log for log in engine.logs if log.problem is not None]
    yield from _each("log_readable", broken, lambda log: log.problem or "")
    if not broken and engine.logs:
        yield _stated("log_readable", f"{len(engine.logs)} logs", "ok", "every log can be opened")
    sound = [log for log in engine.logs if log.problem is None]
    if not engine.read_only:
        skipped = [log for log in sound if log.uncleanable is not None]
        yield from _each("cleanable", skipped, lambda log: f"the cleaner skips it: {log.uncleanable}")
        if not skipped and sound:
            yield _stated("cleanable", f"{len(sound)} logs", "ok", "the cleaner skips no log")
        yield from _worst(
            "unflushed_bytes", sound, lambda log: log.unflushed_bytes or 0, "{:,.0f} bytes are not flushed"
        )
    ended = [log for log in sound if log.offsets_missing]
    yield from _each("log_end", ended, lambda log: f"{log.offsets_missing} flushed offsets were missing")
    if not ended and sound:
        yield _stated("log_end", f"{len(sound)} logs", "ok", "no log ended below its recovery point")
    yield from _worst("segments", sound, lambda log: log.segments, "{:,.0f} segments")
    dated = [log for log in sound if log.max_timestamp >= 0]
    yield from _worst("timestamps", dated, lambda log: log.max_timestamp - engine.now_ms, _ahead)


def _ahead(ms: float) -> str:
    if ms <= 0:
        return "no timestamp is in the future"
    return f"the newest timestamp is {ms / 1000:,.0f} seconds in the future"


def _each(check: str, logs: Sequence[LogFacts], message: Callable[[LogFacts], str]) -> Iterator[Finding]:
    severity: Severity = "warning" if CHECKS[check].critical is None else "critical"
    for log in logs[:LOGS_MAX]:
        yield _stated(check, log.name, severity, message(log))
    if len(logs) > LOGS_MAX:
        yield _stated(check, f"{len(logs) - LOGS_MAX} more logs", severity, "they have the same problem")


def _worst(
    check: str, logs: Iterable[LogFacts], value: Callable[[LogFacts], float], message: str | Callable[[float], str]
) -> Iterator[Finding]:
    """Yield the findings of the logs that are not ok, the worst first; if all are ok, that of the worst log."""
    describe = message.format if isinstance(message, str) else message
    worst = sorted(logs, key=value, reverse=True)
    bad = [log for log in worst if _severity(check, value(log)) != "ok"]
    for log in bad[:LOGS_MAX] or worst[:1]:
        yield _measured(check, log.name, value(log), describe(value(log)))
    if len(bad) > LOGS_MAX:
        yield _measured(check, f"{len(bad) - LOGS_MAX} more logs", value(bad[LOGS_MAX]), "they exceed it, too")


# ---- the machine -----------------------------------------------------------------------------------------------------


def _directory(directory: Directory, offline: str | None) -> Iterator[Finding]:
    path, space, mount = directory.path, directory.space, directory.mount
    reason = offline or directory.problem
    yield _stated("log_directory", path, "critical" if reason else "ok", reason or "online")
    if space is not None and space.total_bytes:
        used = 1 - space.free_bytes / space.total_bytes
        yield _measured("disk_space", path, used, f"{used:.1%} used, {space.free_bytes >> 20:,} MiB free")
        if space.total_inodes and space.free_inodes is not None:
            used = 1 - space.free_inodes / space.total_inodes
            yield _measured("inodes", path, used, f"{used:.1%} used, {space.free_inodes:,} free")
    if mount is not None:
        local = mount.file_system in _LOCAL
        yield _stated("file_system", path, "ok" if local else "warning", f"{mount.file_system} on {mount.source}")
        unsafe = [option for option in mount.options if option in _UNSAFE]
        slow = [option for option in mount.options if option in _SLOW]
        severity: Severity = "critical" if unsafe else "warning" if slow else "ok"
        yield _stated("mount_options", path, severity, ",".join(unsafe + slow or mount.options))
    if directory.scheduler is not None:
        bad = directory.scheduler in ("bfq", "cfq")
        disk = {True: "a spinning disk", False: "a solid-state disk", None: "a disk"}[directory.rotational]
        message = f"{directory.scheduler} for {disk}"
        yield _stated("io_scheduler", path, "warning" if bad else "ok", message)


def _machine(machine: Machine) -> Iterator[Finding]:
    process, memory, limits = machine.process, machine.memory, machine.limits
    if process is not None:
        subject = f"process {process.pid}"
        if process.open_files is not None and process.open_files_max:
            message = f"{process.open_files:,} of {process.open_files_max:,} files are open"
            yield _measured("descriptors", subject, process.open_files / process.open_files_max, message)
        if process.maps is not None and process.maps_max:
            message = f"{process.maps:,} of {process.maps_max:,} maps"
            yield _measured("maps", subject, process.maps / process.maps_max, message)
    if memory.total and memory.available is not None:
        share = memory.available / memory.total
        message = f"{memory.available >> 20:,} of {memory.total >> 20:,} MiB are available"
        yield _measured("memory", "machine", share, message)
    if memory.dirty is not None and limits.threshold:
        share = memory.dirty / limits.threshold
        message = f"{memory.dirty >> 20:,} MiB are dirty; from {limits.threshold >> 20:,} MiB on writers wait"
        yield _measured("dirty_pages", "machine", share, message)
    if limits.background_ratio is not None and not limits.background_bytes:
        message = f"the kernel begins to write at {limits.background_ratio}% of the memory"
        yield _measured("dirty_background", "machine", limits.background_ratio, message)
    if machine.swappiness is not None and machine.swap_bytes:
        message = f"vm.swappiness is {machine.swappiness}"
        yield _measured("swappiness", "machine", machine.swappiness, message)
    elif machine.swap_bytes == 0:
        yield _stated("swappiness", "machine", "ok", "there is no swap")


def _why_unknown(check: str, machine: Machine, engine: Engine) -> str:
    if check in _OF_A_WRITER and engine.read_only:
        return "only the process that writes knows it: call health() there"
    if check in ("descriptors", "maps"):
        running = "the kernel does not show it of this process" if machine.process else "no klog process writes here"
        return f"{running}; a broker leaves no process id"
    if check in ("log_readable", "log_end", "segments", "timestamps", "cleanable", "unflushed_bytes"):
        return "no log is loaded, or none has records"
    if check == "flush_time":
        return "nothing has been flushed yet"
    if check == "page_cache":
        return "too few reads so far"
    if check == "cleaner_threads":
        return "the cleaner does not run: LogManager.start() starts it"
    return "the kernel or the file system does not show it"
