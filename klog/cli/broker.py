"""klog broker [DIR]"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from typing import Any

import click

from klog.cli.output import json_option, print_json

_TMPFS = "/dev/shm"


@click.command("broker")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9092, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option(
    "--listener", "listeners", metavar="[NAME://]HOST:PORT", multiple=True, help="Instead of --host and --port."
)
@click.option("--properties", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="A server.properties.")
@click.option("--config", metavar="K=V", multiple=True, help="A broker-level property of Kafka.")
@click.option(
    "--durability",
    type=click.Choice(["os", "interval", "sync"]),
    default="os",
    show_default=True,
    help="When an acknowledged record is on disk: as the system writes it, within a second, before the response.",
)
@json_option
def command(
    directory: str | None,
    host: str,
    port: int,
    listeners: tuple[str, ...],
    properties: str | None,
    config: tuple[str, ...],
    durability: str,
    as_json: bool,
) -> None:
    """Serve a log directory to Kafka clients, until Ctrl-C or SIGTERM.

    DIR is a log.dir of klog, or of a stopped broker; it is created if it does not exist. Without DIR the broker is for
    tests: it serves a temporary directory, creates topics when a client asks for one, and removes everything at its
    end. It listens on this machine alone unless told otherwise: without TLS and authentication everybody who reaches it
    reads and writes all topics. With --json it prints one line once clients can connect.

    \b
    klog broker data --port 9092
    klog broker --port 0 --json | jq .bootstrap_servers
    """
    import logging

    from klog.broker import Broker

    logging.basicConfig(level=logging.WARNING, format="klog: %(levelname)s %(name)s %(message)s")
    values: dict[str, Any] = {}
    if properties is not None:
        from klog.config.properties import read_properties

        values = _known(read_properties(properties))
    values |= dict(_setting(each) for each in config)
    addresses = list(listeners) or [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    if directory is None:
        with _Temporary() as path:
            _serve(Broker(path, listeners=addresses, config=_TEST_CONFIG | values, durability=durability), as_json)
    else:
        _serve(Broker(directory, listeners=addresses, config=values, durability=durability), as_json)


_TEST_CONFIG = {"auto.create.topics.enable": True}


class _Temporary:
    """A directory in memory where there is one, removed at the end."""

    def __enter__(self) -> str:
        import tempfile

        self.path = tempfile.mkdtemp(prefix="klog-broker-", dir=_TMPFS if os.access(_TMPFS, os.W_OK) else None)
        return self.path

    def __exit__(self, *error: object) -> None:
        import shutil

        shutil.rmtree(self.path, ignore_errors=True)


def _serve(broker: Any, as_json: bool) -> None:
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with broker:
            if as_json:
                print_json(
                    {
                        "bootstrap_servers": broker.bootstrap_servers,
                        "port": broker.port,
                        "directory": broker.logs.path,
                        "node_id": broker.node_id,
                        "pid": os.getpid(),
                    }
                )
            else:
                click.echo(f"klog broker {broker.bootstrap_servers} serves {broker.logs.path}; Ctrl-C stops it")
            sys.stdout.flush()
            gc.collect()
            gc.freeze()  # what is there now stays: later collections do not look at it
            ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"--config {text}: K=V expected, as in auto.create.topics.enable=true")
    return name.strip(), value.strip()


def _known(values: dict[str, str]) -> dict[str, str]:
    """The properties of a server.properties that this broker takes; the others are named on stderr."""
    from klog.broker.properties import PROPERTY_NAMES, known_properties

    names = known_properties(PROPERTY_NAMES)
    ignored = sorted(name for name in values if name not in names)
    if ignored:
        click.echo(f"klog: ignored properties: {', '.join(ignored)}", err=True)
    return {name: value for name, value in values.items() if name in names}
