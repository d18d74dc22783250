"""klog's broker as a program: `python -m tests.clients.klog_broker DIRECTORY '{"kafka.property": "value"}'`.

Prints {"bootstrap_servers": "host:port"} once clients can connect; SIGTERM stops it.
"""

from __future__ import annotations

import json
import signal
import sys

import klog


def main(directory: str, properties: str) -> None:
    broker = klog.Broker(directory, listeners=("127.0.0.1:0",), **json.loads(properties))
    broker.start()
    try:
        print(json.dumps({"bootstrap_servers": broker.bootstrap_servers}), flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    finally:
        broker.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1], sys.argv[2])
