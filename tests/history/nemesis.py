"""What goes wrong: to a broker in a process of its own, and to a klog.testing.TestBroker."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.history.recording import now
from tests.support.broker_process import BrokerProcess

_ERRORS = {
    "produce": ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS"),
    "fetch": ("NOT_LEADER_OR_FOLLOWER", "FETCH_SESSION_ID_NOT_FOUND"),
    "join_group": ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"),
    "heartbeat": ("COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS"),
    "offset_commit": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
    "offset_fetch": ("COORDINATOR_LOAD_IN_PROGRESS",),  # after another one librdkafka 2.16.0 does not ask again
    "init_producer_id": ("CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR"),
    "add_partitions_to_txn": ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"),
    "add_offsets_to_txn": ("CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR"),
    "txn_offset_commit": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"),
    "end_txn": ("CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    "consumer_group_heartbeat": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"),
}


def disturb_process(broker: BrokerProcess, chance: random.Random, seconds: float, wait: Any) -> Counter[str]:
    """Kill, stop, and pause the broker for so long; it serves at the end. wait: sleeps for seconds."""
    done, deadline = Counter[str](), now() + seconds
    while True:
        wait(chance.uniform(0.3, 1.5))
        what = chance.choice(("kill", "pause", "stop", "kill twice")) if done else "kill"
        if done and now() > deadline:
            return done
        done[what] += 1
        if what == "pause":
            broker.pause(chance.uniform(0.05, 1.5))
            continue
        if what == "stop":
            broker.stop()
        else:
            broker.kill()
        wait(chance.uniform(0, 0.5))
        broker.start()
        if what == "kill twice":
            wait(chance.uniform(0, 0.2))
            broker.kill()
            broker.start()


def disturb_requests(broker: Any, chance: random.Random, seconds: float, wait: Any) -> Counter[str]:
    """Faults of a TestBroker for so long, and now and then its death; none is left at the end."""
    done, deadline = Counter[str](), now() + seconds
    while now() < deadline:
        wait(chance.uniform(0.01, 0.1))
        api = chance.choice(list(_ERRORS))
        what = chance.choice(("error", "before", "after", "half", "delay", "kill"))
        done[what] += 1
        match what:
            case "error":
                broker.inject(api, error=chance.choice(_ERRORS[api]), count=chance.randrange(1, 4))
            case "before" | "after":
                broker.inject(api, disconnect=what)
            case "half":
                broker.inject(api, half=True)
            case "delay":
                broker.inject(api, delay_ms=chance.randrange(1, 300), count=chance.randrange(1, 4))
            case "kill":
                if chance.random() < 0.2:
                    broker.kill()
                    broker.start()
    broker.clear_faults()
    return done
