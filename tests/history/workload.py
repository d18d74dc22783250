"""One run: clients of all kinds on a broker while it is disturbed, then healing, and the demand for progress.

topic "in", 3 partitions    plain senders (wire), idempotent and not (librdkafka); groups classic and consumer
topic "out", 2 partitions   copiers: transactions over "in", some of them aborted
group "turns"               members without records, for its generations
readers                     librdkafka and wire, read_committed and read_uncommitted; a watcher of ends and commits
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from klog.protocol import ApiKey, messages
from tests.history.checker import Anomaly, check
from tests.history.confluent import Copier, GroupConsumer, Reader, Sender
from tests.history.operations import Partition, Poll
from tests.history.recording import History, Worker, now
from tests.history.wire import LOST, Watcher, WireMember, WireProducer, WireReader
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

IN: list[Partition] = [("in", number) for number in range(3)]
OUT: list[Partition] = [("out", number) for number in range(2)]
Disturb = Callable[[random.Random, float, Callable[[float], None]], Counter[str]]


class Result(NamedTuple):
    faults: Counter[str]
    counts: Counter[str]
    anomalies: list[Anomaly]
    errors: list[str]


def run(address: str, disturb: Disturb, *, seed: int, seconds: float, members: int, patience: float) -> Result:
    """members: of each group, and copiers of each kind. patience: the seconds in which everything must arrive after the
    broker is healed."""
    chance, history = random.Random(seed), History()
    _create_topics(address)
    writers, others = _workers(address, history, chance, members)
    for worker in (*others, *writers):
        worker.start()
    faults = disturb(random.Random(seed), seconds, time.sleep)
    _end(writers, history)
    errors = _missing_progress(address, history, patience)
    _end(others, history)
    operations = history.snapshot()
    counts = Counter(type(each).__name__ for each in operations)
    anomalies = check(operations) + _copied_otherwise_than_once(operations)
    return Result(faults, counts, anomalies, errors + history.errors)


def _create_topics(address: str) -> None:
    Topic = messages.CreateTopics.Request.Topic
    asked = [Topic(name=name, num_partitions=number, replication_factor=1) for name, number in (("in", 3), ("out", 2))]
    with WireClient(address) as client:
        found = client.call(ApiKey.CREATE_TOPICS, 5, topics=asked, timeout_ms=10_000)
    assert [each.error_code for each in found.topics] == [0, 0]


def _workers(address: str, history: History, chance: random.Random, members: int) -> tuple[list[Worker], list[Worker]]:
    """The senders, and all others."""

    def seed() -> int:
        return chance.getrandbits(32)

    writers: list[Worker] = [
        WireProducer("wire", address, history, IN, seed()),
        Sender("plain", address, history, IN, seed(), idempotent=False),
        Sender("idempotent", address, history, IN, seed(), idempotent=True),
    ]
    others: list[Worker] = [
        WireReader("wire-ru", address, history, IN + OUT, committed_only=False),
        WireReader("wire-rc", address, history, IN + OUT, committed_only=True),
        Reader("reader-ru", address, history, IN + OUT, committed_only=False),
        Reader("reader-rc", address, history, IN + OUT, committed_only=True),
        Watcher("watcher", address, history, IN + OUT, ["classic", "consumer", "copiers-classic"], seed()),
        *(WireMember(f"member-{each}", address, history, "turns", IN, seed()) for each in range(members)),
    ]
    for each in range(members):
        leaves = 0.002 if each else 0.0
        for protocol in ("classic", "consumer"):
            name = f"{protocol}-{each}"
            assignor = "cooperative-sticky"
            others += [
                GroupConsumer(name, address, history, protocol, ["in"], seed(), protocol=protocol, leaves=leaves,
                              assignor=assignor),
                Copier(f"copier-{name}", address, history, f"copiers-{protocol}", "in", OUT, seed(), protocol=protocol,
                       leaves=leaves / 4),
            ]  # fmt: skip
    return writers, others


def _end(workers: list[Worker], history: History) -> None:
    for worker in workers:
        worker.ending.set()
    for worker in workers:
        worker.join(PATIENCE)
        if worker.is_alive():
            stack = traceback.format_stack(sys._current_frames()[worker.ident or 0])
            history.fail(f"{worker.name} does not end:\n{''.join(stack[-3:])}")


def _missing_progress(address: str, history: History, patience: float) -> list[str]:
    """Wait until all groups have committed the end of "in", and fresh readers have read everything. What is missing."""
    deadline = now() + patience
    watcher = Watcher("at the end", address, history, IN, [], 0)
    missing = ["nothing was looked at"]
    while missing and now() < deadline:
        try:
            ends = watcher.ends(committed_only=False)
            missing = [f"{each}: no end" for each in IN if each not in ends]
            for group in ("classic", "consumer", "copiers-classic", "copiers-consumer"):
                committed = watcher.committed(group)
                missing += [
                    f"group {group} has committed {committed.get(each)} of {end} in {each}"
                    for each, end in ends.items()
                    if committed.get(each, 0) != end
                ]
        except LOST as error:
            missing = [f"the broker does not respond: {error}"]
        time.sleep(0.1)
    watcher.close()
    for committed_only in (False, True):
        name = "final-rc" if committed_only else "final-ru"
        reader = WireReader(name, address, history, IN + OUT, committed_only=committed_only)
        missing += reader.drain(max(5.0, deadline - now()))
    return missing


def _copied_otherwise_than_once(operations: list[Any]) -> list[Anomaly]:
    """Each group of copiers copies each record of "in" exactly once."""
    read = [each for each in operations if isinstance(each, Poll) and each.client == "final-rc"]
    sources = {(each.partition[1], offset) for each in read for offset, _ in each.records if each.partition[0] == "in"}
    found: list[Anomaly] = []
    for protocol in ("classic", "consumer"):
        copies = Counter(
            tuple(int(part) for part in value.partition("<")[2].split("/"))
            for each in read
            for _, value in each.records
            if value.startswith(f"copier-{protocol}-")
        )
        found += [Anomaly("copied twice", f"{protocol}: {at}") for at, number in copies.items() if number > 1]
        found += [Anomaly("not copied", f"{protocol}: {at}") for at in sorted(sources - set(copies))[:20]]
    return found
