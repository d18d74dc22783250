"""handover(path): makes a directory of klog one that a stock Kafka broker starts on.

  W1  files are replaced atomically, in the order partition.metadata, server.properties, bootstrap.checkpoint, the
      clean-shutdown marker, meta.properties. After a crash klog can open the directory, a broker refuses it while
      meta.properties is missing, and another handover completes the first one
  W2  no file with records is changed
  W3  a second handover changes nothing if nothing has changed

Kafka: `kafka-storage format` (Formatter), BootstrapDirectory, MetaPropertiesEnsemble.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from klog import arguments
from klog.clock import Clock, SystemClock
from klog.config import config_values
from klog.config.values import format_value
from klog.coordinator.transactions.producer_ids import stored_next
from klog.disk import DirectoryLock, Files, RealFiles, check_directory, read_whole
from klog.errors import CorruptData, HandoverRefused
from klog.handover.broker_state import broker_records
from klog.handover.metadata import BOOTSTRAP
from klog.handover.plan import Plan, make_plan
from klog.handover.records import MetadataRecord
from klog.handover.releases import Release, release
from klog.handover.server_properties import Listener, check_listeners, properties_text, server_properties
from klog.handover.snapshot import snapshot_bytes
from klog.handover.survey import Survey, survey
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import decode_uuid, encode_uuid
from klog.log.options import check_tools
from klog.manager.directory_set import Paths, as_paths
from klog.progress import Progress
from klog.record import iter_records
from klog.security.config import AUTHORIZER
from klog.segment.names import METADATA
from klog.values import dataclass

NODE_ID_MAX: Final = 2**31 - 1
PRINT_ONLY: Final = "-"


def handover(
    path: Paths,
    *,
    cluster_id: str | None = None,
    node_id: int = 1,
    controller_listener: str = "127.0.0.1:9093",
    listeners: Sequence[str] | str = ("127.0.0.1:9092",),
    kafka_version: str = "4.1",
    properties_out: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    next_producer_id: int = 0,
    extra: Iterable[MetadataRecord] = (),
    dry_run: bool = False,
    clock: Clock | None = None,
    files: Files | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Make a log.dir of klog, or several, the log.dirs of a Kafka broker that has not started yet.

    The broker knows all topics with their ids and configurations, leads every partition at the log's leader epoch, and
    is its own controller. path: all log.dirs of the broker; the first gets the metadata. cluster_id: 22 characters;
    None for the present one of meta.properties, or a new one. listeners: "host:port", or with a protocol
    "SASL_SSL://host:port". kafka_version: a release from 4.0 on, whose features are set. properties_out: the path of
    the server.properties; None for DIR.server.properties beside the first log.dir, "-" for no file. config:
    further entries of it, such as those that klog.Broker got. next_producer_id: no producer gets an id below it, nor
    one that klog has assigned or that is in the logs. extra: further records of metadata, beside those of the users,
    access rules, quotas and dynamic configurations of klog's broker. dry_run: change nothing.

    Returns {"path", "dry_run", "cluster_id", "node_id", "kafka_version", "features", "next_producer_id", "topics"
    (topic, topic_id, partitions, config), "records", "changed" (paths of files), "server_properties" (path or None),
    "properties" (its text), "command", "warnings"}.

    Raises HandoverRefused for a directory that was not closed cleanly, has a metadata log, or that a broker would not
    load; AlreadyLocked; ConfigUnknown for a topic without a known configuration; InconsistentTopicId, DuplicateLog,
    CorruptData, OSError. Nothing is changed then. Only an OSError may come after files were written: call
    handover() again.
    """
    paths = as_paths(path)
    for each in paths:
        if "," in each:
            raise ValueError(f"path={each!r}: a comma separates directories in log.dirs of a server.properties")
    node_id = arguments.whole("node_id", node_id, 0, NODE_ID_MAX)
    next_producer_id = arguments.whole("next_producer_id", next_producer_id, 0)
    arguments.function("progress", progress)
    check_tools(clock, files)
    if isinstance(extra, Mapping):
        raise arguments.wrong_type("extra", extra, "a list of MetadataRecord")
    found = arguments.items("extra", extra, "a list of MetadataRecord")
    records, dry_run = [_checked(record) for record in found], arguments.flag("dry_run", dry_run)
    chosen = release(arguments.text("kafka_version", kafka_version))
    controller, bound = check_listeners(controller_listener, listeners)
    if cluster_id is not None and _known_id(cluster_id) is None:
        raise ValueError(f"cluster_id={cluster_id!r}: 22 characters, as `kafka-storage random-uuid` prints, expected")
    given = {key: format_value(value) for key, value in config_values("config", config).items()}
    paths = [check_directory(each) for each in paths]
    out = _properties_path(paths[0], properties_out)
    work = _Handover(paths, node_id, chosen, controller, bound, given, out, files or RealFiles())
    with _locked(paths):
        return work.run(cluster_id, next_producer_id, records, (clock or SystemClock()).wall_ms(), dry_run, progress)


@dataclass(frozen=True, slots=True)
class _Handover:
    """One call of handover(). The locks of all log.dirs are held."""

    paths: list[str]
    node_id: int
    release: Release
    controller: Listener
    listeners: tuple[Listener, ...]
    config: Mapping[str, str]
    properties_path: str | None
    files: Files

    def run(
        self,
        cluster_id: str | None,
        next_producer_id: int,
        extra: list[MetadataRecord],
        now_ms: int,
        dry_run: bool,
        progress: Progress | None,
    ) -> dict[str, Any]:
        """Decide everything, then write, unless it is a dry run."""
        found = survey(self.paths, self.files, progress)
        cluster_id = self._cluster_id(cluster_id)
        first = self.paths[0]
        security = broker_records(first, self.node_id, self.files)
        directory_ids = {path: known or uuid.uuid4() for path, known in found.directory_ids.items()}
        plan = make_plan(
            found,
            self.release,
            node_id=self.node_id,
            directory_ids=directory_ids,
            least_producer_id=max(next_producer_id, stored_next(first)),
            extra=[*security, *extra],
            now_ms=now_ms,
        )
        partitions = {name: len(topic.partitions) for name, topic in plan.cluster.topics.items()}
        values = server_properties(self.node_id, self.paths, self.controller, self.listeners, partitions, self.config)
        properties = properties_text(values)
        writes = [
            *self._ids(found, plan),
            *self._server_properties(properties),
            *self._bootstrap(plan, now_ms),
            *self._markers(plan),
            *self._meta(cluster_id, directory_ids),
        ]
        if not dry_run:
            self._sync_names(found)
            for target, data in writes:
                self.files.replace(target, data, private=target.endswith(BOOTSTRAP) and _has_keys(plan))
        report = self._report(cluster_id, plan, properties, [target for target, _ in writes], dry_run)
        report["warnings"] += _security_warnings(plan, values)
        return report

    def _sync_names(self, found: Survey) -> None:
        """Sync the directories of all files: an earlier handover that was killed may have written some of them, whose
        names are not on disk."""
        partitions = [partition.path for topic in found.topics.values() for partition in topic.partitions.values()]
        properties = [] if self.properties_path is None else [os.path.dirname(self.properties_path)]
        for directory in (*partitions, *properties, *self.paths):
            self.files.fsync_dir(directory)

    # ---- what is written, in this order ------------------------------------------------------------------------------

    def _ids(self, found: Survey, plan: Plan) -> Iterator[tuple[str, bytes]]:
        """Yield the partition.metadata that are missing."""
        for name, topic in found.topics.items():
            for partition in topic.partitions.values():
                if partition.stored_id is None:
                    target = os.path.join(partition.path, METADATA)
                    yield target, checkpoint.format_metadata(plan.cluster.topics[name].topic_id)

    def _server_properties(self, text: str) -> Iterator[tuple[str, bytes]]:
        target = self.properties_path
        present = None if target is None else _content(target)
        if target is None or present == text.encode():
            return
        if present is not None:
            raise HandoverRefused(
                f"{target} exists and differs, maybe by your own settings: move it away, or give another path as "
                'properties_out, or "-" for no file'
            )
        yield target, text.encode()

    def _bootstrap(self, plan: Plan, now_ms: int) -> Iterator[tuple[str, bytes]]:
        target = os.path.join(self.paths[0], BOOTSTRAP)
        present = _content(target)
        if present is None or _values(present) != [record.value() for record in plan.records]:
            yield target, snapshot_bytes(plan.records, now_ms)

    def _markers(self, plan: Plan) -> Iterator[tuple[str, bytes]]:
        """Yield the clean-shutdown markers: with the broker epoch of the registration."""
        data = b'{"version":0,"brokerEpoch":%d}' % plan.broker_epoch
        for path in self.paths:
            target = checkpoint.clean_shutdown_path(path)
            if _content(target) != data:
                yield target, data

    def _meta(self, cluster_id: str, directory_ids: Mapping[str, uuid.UUID]) -> Iterator[tuple[str, bytes]]:
        for path, directory_id in directory_ids.items():
            values = {
                "cluster.id": cluster_id,
                "directory.id": encode_uuid(directory_id),
                "node.id": str(self.node_id),
                "version": "1",
            }
            target = os.path.join(path, checkpoint.META_PROPERTIES)
            if checkpoint.meta_properties(path) != values:
                yield target, "".join(f"{name}={value}\n" for name, value in values.items()).encode()

    def _cluster_id(self, wanted: str | None) -> str:
        """Return the id to use. Raises HandoverRefused if a directory belongs to another cluster or node."""
        known = wanted
        for path in self.paths:
            present = checkpoint.meta_properties(path)
            for name, asked in (("cluster.id", known), ("node.id", str(self.node_id))):
                if asked is not None and present.get(name, asked) != asked:
                    raise HandoverRefused(
                        f"{os.path.join(path, checkpoint.META_PROPERTIES)} has {name}={present[name]}, not {asked}: "
                        "hand over with that, or move the file away"
                    )
            known = known or present.get("cluster.id")
        return known or _new_cluster_id()

    def _report(
        self, cluster_id: str, plan: Plan, properties: str, changed: list[str], dry_run: bool
    ) -> dict[str, Any]:
        cluster = plan.cluster
        return {
            "path": self.paths[0],
            "dry_run": dry_run,
            "cluster_id": cluster_id,
            "node_id": self.node_id,
            "kafka_version": self.release.name,
            "features": dict(cluster.features),
            "next_producer_id": cluster.next_producer_id,
            "topics": [
                {
                    "topic": name,
                    "topic_id": encode_uuid(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "config": dict(topic.config),
                }
                for name, topic in cluster.topics.items()
            ],
            "records": len(plan.records),
            "changed": changed,
            "server_properties": self.properties_path,
            "properties": properties,
            "command": f"bin/kafka-server-start.sh {shlex.quote(self.properties_path or 'server.properties')}",
            "warnings": list(plan.warnings),
        }


@contextlib.contextmanager
def _locked(paths: list[str]) -> Iterator[None]:
    """Hold the locks of all log.dirs. Raises AlreadyLocked, OSError."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.callback(DirectoryLock(path).release)
        yield


def _has_keys(plan: Plan) -> bool:
    return any(record.type == "user_scram_credential_record" for record in plan.records)


def _security_warnings(plan: Plan, properties: Mapping[str, str]) -> list[str]:
    """Return warnings of records that have no effect with this server.properties."""
    types = [record.type for record in plan.records]
    warnings = []
    if "access_control_entry_record" in types and "authorizer.class.name" not in properties:
        warnings.append(
            f"the access rules have no effect: server.properties names no authorizer; set authorizer.class.name="
            f"{AUTHORIZER}, and super.users"
        )
    if _has_keys(plan) and "SASL_" not in properties["listeners"]:
        warnings.append("the SCRAM users have no effect: no listener has SASL")
    return warnings


def _properties_path(log_dir: str, given: str | os.PathLike[str] | None) -> str | None:
    if given is None:
        return f"{log_dir.rstrip('/')}.server.properties"
    found = arguments.path("properties_out", given)
    return None if found == PRINT_ONLY else os.path.abspath(found)


def _checked(record: MetadataRecord) -> MetadataRecord:
    """Return a record of `extra`. Raises ValueError if it cannot be encoded."""
    if not isinstance(record, MetadataRecord):
        raise arguments.wrong_type("extra", record, "a list of MetadataRecord")
    try:
        record.value()
    except ValueError as error:
        raise ValueError(f"extra: {error}") from None
    return record


def _known_id(text: str) -> uuid.UUID | None:
    found = decode_uuid(arguments.text("cluster_id", text))
    return found if found is not None and encode_uuid(found) == text else None


def _new_cluster_id() -> str:
    """Return a new id; like Kafka's, it does not begin with a dash, which would look like an option."""
    while (text := encode_uuid(uuid.uuid4())).startswith("-"):
        pass
    return text


def _content(path: str) -> bytes | None:
    try:
        return bytes(read_whole(path))
    except FileNotFoundError:
        return None


def _values(snapshot: bytes) -> list[bytes | None]:
    """Return the values of the records in a bootstrap.checkpoint; none if it is damaged."""
    try:
        return [record.value for record in iter_records(snapshot)]
    except CorruptData:
        return []
