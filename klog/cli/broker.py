"""klog broker [DIR]"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from klog.cli.output import json_option, print_json, usage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klog.log.options import Durability


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
@click.option(
    "--control-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="For tests: a port of this machine to control the broker over HTTP; 0: a free one.",
)
@click.option("--manual-clock", is_flag=True, help="For tests: time stands still until the control advances it.")
@json_option
def command(
    directory: str | None,
    host: str,
    port: int,
    listeners: tuple[str, ...],
    properties: str | None,
    config: tuple[str, ...],
    durability: Durability,
    control_port: int | None,
    manual_clock: bool,
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
    klog broker --port 0 --control-port 0 --json | jq .control_url
    """
    import logging

    if manual_clock and control_port is None:
        raise click.UsageError("--manual-clock needs --control-port: without it the time would never go on")
    logging.basicConfig(level=logging.WARNING, format="klog: %(levelname)s %(name)s %(message)s")
    values: dict[str, Any] = {}
    if properties is not None:
        from klog.config.properties import read_properties

        values = _known(read_properties(properties))
    values |= dict(_setting(each) for each in config)
    addresses = list(listeners) or [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    arguments: dict[str, Any] = {"listeners": addresses, "durability": durability}
    if control_port is not None:
        arguments |= {"control": True, "control_port": control_port, "clock": _manual() if manual_clock else None}
    with _temporary() if directory is None else nullcontext(directory) as path:
        values = (_TEST_CONFIG if directory is None else {}) | values
        with usage_errors():
            broker = _made(path, control_port is not None, values, arguments)
        _serve(broker, as_json)


_TEST_CONFIG = {"auto.create.topics.enable": True}
# What a TestBroker has otherwise than a Broker.
_BROKER_CONFIG = {"auto.create.topics.enable": False, "num.io.threads": 8, "log.cleaner.threads": 1}


def _made(path: str, is_controlled: bool, config: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """A Broker, or a TestBroker with the properties of one."""
    if not is_controlled:
        from klog.broker import Broker

        return Broker(path, config=config, **arguments)
    from klog.testing import TestBroker

    return TestBroker(directory=path, config=_BROKER_CONFIG | config, **arguments)


def _manual() -> Any:
    from klog.clock import ManualClock, SystemClock

    return ManualClock(SystemClock().wall_ms())


@contextmanager
def _temporary() -> Iterator[str]:
    """A directory in memory where there is one, removed at the end."""
    from klog.testing.place import new_directory, remove_directory

    path = new_directory()
    try:
        yield path
    finally:
        remove_directory(path)


def _serve(broker: Any, as_json: bool) -> None:
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with broker:
            control_url = getattr(broker, "control_url", None)
            if as_json:
                facts = {
                    "bootstrap_servers": broker.bootstrap_servers,
                    "port": broker.port,
                    "directory": broker.logs.path,
                    "node_id": broker.node_id,
                    "pid": os.getpid(),
                }
                print_json(facts if control_url is None else {**facts, "control_url": control_url})
            else:
                control = "" if control_url is None else f", with control at {control_url}"
                click.echo(
                    f"klog broker {broker.bootstrap_servers} serves {broker.logs.path}{control}; Ctrl-C stops it"
                )
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
