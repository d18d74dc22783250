"""Every broker-level property that concerns the log, and related ones of a server.properties.

klog checks the values of all of them. Those of the network have Kafka's defaults here; klog.network.NetworkConfig has
those of klog.Broker. Those of replication and tiered storage, which klog does not have, are kept for programs that read
them. Kafka: ServerLogConfigs, CleanerConfig, ReplicationConfigs, SocketServerConfigs,
QuotaConfig, RemoteLogManagerConfig.
"""

from __future__ import annotations

import sys
from typing import Literal

from klog.arguments import INT_MAX, LONG_MAX, LONG_MIN
from klog.config.table import Key

Dynamic = Literal["no", "yes", "half..double"]
INT_MIN = -(2**31)


def _int(
    name: str, default: int, doc: str, low: int | None = None, high: int = INT_MAX, dynamic: Dynamic = "no"
) -> Key:
    return Key(name, "int", default, doc, INT_MIN if low is None else low, high, dynamic=dynamic)


def _long(name: str, default: int, doc: str, low: int | None = None, dynamic: Dynamic = "no") -> Key:
    return Key(name, "long", default, doc, LONG_MIN if low is None else low, LONG_MAX, dynamic=dynamic)


def _text(name: str, default: str | None, doc: str, dynamic: Dynamic = "no") -> Key:
    return Key(name, "string", default, doc, dynamic=dynamic)


_LOG = (
    Key("log.dirs", "list", None, "the directories that hold the logs; if unset, log.dir"),
    Key("log.dir", "list", ("/tmp/kafka-logs",), "the same, used if log.dirs is unset"),
    _int("num.recovery.threads.per.data.dir", 2, "threads per directory to load and close", 1, dynamic="half..double"),
    _long("log.retention.check.interval.ms", 300_000, "period of the retention task, ms", 1),
    _long("log.flush.scheduler.interval.ms", LONG_MAX, "period of the check of flush.ms, ms", 1),
    _int("log.flush.offset.checkpoint.interval.ms", 60_000, "period of the recovery-point checkpoint, ms", 0),
    _int("log.flush.start.offset.checkpoint.interval.ms", 60_000, "period of the log-start checkpoint, ms", 0),
    _long("log.initial.task.delay.ms", 30_000, "delay of the first background task, ms", 0),
    _long("log.dir.failure.timeout.ms", 30_000, "how long a broker may take to report a failed directory, ms", 1),
    Key("log.cleaner.enable", "bool", True, "whether the cleaner runs; deprecated, in Kafka 5.0 it always does"),
    _int("log.cleaner.threads", 1, "cleaner threads", 0, dynamic="half..double"),
    _long("log.cleaner.dedupe.buffer.size", 134_217_728, "memory of the key map, bytes", 0, "yes"),
    _int("log.cleaner.io.buffer.size", 524_288, "memory of the cleaner's I/O, bytes", 0, dynamic="yes"),
    Key("log.cleaner.io.buffer.load.factor", "double", 0.9, "maximum load of the key map", 0, 1, dynamic="yes"),
    Key(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        sys.float_info.max,
        "cleaner throttle, bytes a second",
        0,
        dynamic="yes",
    ),
    _long("log.cleaner.backoff.ms", 15_000, "cleaner's pause when nothing is dirty, ms", 0, "yes"),
    _int("producer.id.expiration.ms", 86_400_000, "idle time after which a producer expires, ms", 1, dynamic="yes"),
    _int("producer.id.expiration.check.interval.ms", 600_000, "period of that check, ms", 1),
    Key(
        "transaction.partition.verification.enable",
        "bool",
        True,
        "ask the coordinator whether a partition is part of a transaction",
        dynamic="yes",
    ),
    _int("transaction.max.timeout.ms", 900_000, "longest transaction a producer may ask for, ms", 1),
    _int("num.partitions", 1, "partitions of a topic created without a number", 1),
    _int("default.replication.factor", 1, "replicas of a topic created without a number"),
)

_REPLICATION = (
    _long("replica.high.watermark.checkpoint.interval.ms", 5_000, "period of the high-watermark checkpoint, ms", 1),
    _long("replica.lag.time.max.ms", 30_000, "lag after which a follower leaves the in-sync set, ms"),
    _int("replica.fetch.max.bytes", 1_048_576, "a follower's fetch of one partition, bytes", 0),
    _int("replica.fetch.response.max.bytes", 10_485_760, "a follower's whole fetch, bytes", 0),
    _int("replica.fetch.min.bytes", 1, "a follower's fetch waits for this many bytes"),
    _int("replica.fetch.wait.max.ms", 500, "how long a follower's fetch may wait, ms"),
    _int("replica.fetch.backoff.ms", 1_000, "a follower's pause after an error, ms", 0),
    _int("num.replica.fetchers", 1, "fetcher threads per source broker", 1, dynamic="half..double"),
    _int("fetch.purgatory.purge.interval.requests", 1_000, "fetches between purges of waiting fetches"),
    _int("producer.purgatory.purge.interval.requests", 1_000, "produces between purges of waiting produces"),
    _int("delete.records.purgatory.purge.interval.requests", 1, "record deletions between purges of waiting ones"),
    _int("fetch.max.bytes", 57_671_680, "a consumer's whole fetch, bytes", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1_000, "fetch sessions kept", 0),
    _int("quota.window.num", 11, "samples of a client quota", 1),
    _int("quota.window.size.seconds", 1, "length of a sample, s", 1),
    _int("replication.quota.window.num", 11, "samples of a replication quota", 1),
    _int("replication.quota.window.size.seconds", 1, "length of a sample, s", 1),
    _int("alter.log.dirs.replication.quota.window.num", 11, "samples of the quota on moves between directories", 1),
    _int("alter.log.dirs.replication.quota.window.size.seconds", 1, "length of a sample, s", 1),
)

_REMOTE = (
    Key("remote.log.storage.system.enable", "bool", False, "whether topics may be tiered"),
    _text("remote.log.storage.manager.impl.prefix", "rsm.config.", "prefix of the storage plug-in's keys"),
    _text("remote.log.metadata.manager.impl.prefix", "rlmm.config.", "prefix of the metadata plug-in's keys"),
    _int("remote.log.manager.thread.pool.size", 2, "threads for followers' tiering tasks", 1),
    _int(
        "remote.log.manager.follower.thread.pool.size",
        2,
        "the same; its name since Kafka 4.3",
        1,
        dynamic="half..double",
    ),
    _int("remote.log.manager.copier.thread.pool.size", 10, "threads that copy segments", 1, dynamic="half..double"),
    _int(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        "threads that expire tiered segments",
        1,
        dynamic="half..double",
    ),
    _long("remote.log.manager.task.interval.ms", 30_000, "period of a tiering task, ms", 1),
    _long("remote.log.manager.task.retry.backoff.ms", 500, "first pause of a failed tiering task, ms", 1),
    _long("remote.log.manager.task.retry.backoff.max.ms", 30_000, "longest pause of a failed tiering task, ms", 1),
    Key("remote.log.manager.task.retry.jitter", "double", 0.2, "random share of that pause", 0, 0.5),
    _int("remote.log.reader.threads", 10, "threads that read tiered data", 1, dynamic="half..double"),
    _int("remote.log.reader.max.pending.tasks", 100, "reads of tiered data that may wait", 1),
    _long("remote.log.manager.copy.max.bytes.per.second", LONG_MAX, "copy throttle, bytes a second", 1, "yes"),
    _long("remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, "fetch throttle, bytes a second", 1, "yes"),
    _int("remote.log.manager.copy.quota.window.num", 11, "samples of the copy throttle", 1),
    _int("remote.log.manager.copy.quota.window.size.seconds", 1, "length of a sample, s", 1),
    _int("remote.log.manager.fetch.quota.window.num", 11, "samples of the fetch throttle", 1),
    _int("remote.log.manager.fetch.quota.window.size.seconds", 1, "length of a sample, s", 1),
    _int("remote.fetch.max.wait.ms", 500, "how long a fetch waits for tiered data, ms", 1, dynamic="yes"),
    _long("remote.list.offsets.request.timeout.ms", 30_000, "how long an offset query waits, ms", 1, "yes"),
    _long("remote.log.index.file.cache.total.size.bytes", 1 << 30, "local copies of remote indexes, bytes", 1, "yes"),
    _int("remote.log.metadata.custom.metadata.max.bytes", 128, "a plug-in's own metadata of a segment, bytes", 0),
)

_NETWORK = (
    _int("num.network.threads", 3, "threads that read and write sockets", 1, dynamic="half..double"),
    _int("num.io.threads", 8, "threads that handle requests", 1, dynamic="half..double"),
    _int("background.threads", 10, "threads for background work", 1, dynamic="half..double"),
    _int("queued.max.requests", 500, "requests that may wait", 1),
    _long("queued.max.request.bytes", -1, "bytes of requests that may wait; -1: no limit"),
    _int("socket.send.buffer.bytes", 102_400, "SO_SNDBUF; -1: the system's"),
    _int("socket.receive.buffer.bytes", 102_400, "SO_RCVBUF; -1: the system's"),
    _int("socket.request.max.bytes", 104_857_600, "largest request, bytes", 1),
    _int("socket.listen.backlog.size", 50, "connections that may wait to be accepted", 1),
    _int("max.connections", INT_MAX, "connections in all", 0, dynamic="yes"),
    _int("max.connections.per.ip", INT_MAX, "connections per address", 0, dynamic="yes"),
    _text("max.connections.per.ip.overrides", "", "host:number,... for some addresses", "yes"),
    _int("max.connection.creation.rate", INT_MAX, "new connections a second", 0, dynamic="yes"),
    _long("connections.max.idle.ms", 600_000, "idle time after which a connection is closed, ms"),
    _int("connection.failed.authentication.delay.ms", 100, "delay before a failed login is answered, ms", 0),
    _text("ssl.keystore.type", "JKS", "format of the key store", "yes"),
    _text("ssl.keystore.location", None, "file of the key store", "yes"),
    _text("ssl.truststore.type", "JKS", "format of the trust store", "yes"),
    _text("ssl.truststore.location", None, "file of the trust store", "yes"),
    *(
        Key(name, "string", None, doc, dynamic="yes", secret=True)
        for name, doc in (
            ("ssl.keystore.password", "password of the key store"),
            ("ssl.keystore.key", "private key in the file itself"),
            ("ssl.keystore.certificate.chain", "certificates of that private key"),
            ("ssl.key.password", "password of the private key"),
            ("ssl.truststore.password", "password of the trust store"),
            ("ssl.truststore.certificates", "trusted certificates in the file itself"),
        )
    ),
)

BROKER_KEYS: dict[str, Key] = {key.name: key for key in (*_LOG, *_REPLICATION, *_REMOTE, *_NETWORK)}
