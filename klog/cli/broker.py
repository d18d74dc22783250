"""klog broker [DIR]"""

from __future__ import annotations

from typing import Any

import click

from klog.cli.output import json_option, print_json, usage_errors
from klog.cli.quick import DEFAULTS, DURABILITIES, arguments_of


@click.command("broker")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option("--host", default=DEFAULTS["host"], show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=DEFAULTS["port"], show_default=True, type=click.IntRange(0, 65535), help="0: a free one."
)
@click.option(
    "--listener", "listeners", metavar="[NAME://]HOST:PORT", multiple=True, help="Instead of --host and --port."
)
@click.option(
    "--properties",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A server.properties; DIR replaces its log.dirs, --listener or --host and --port its listeners.",
)
@click.option("--config", metavar="K=V", multiple=True, help="A broker-level property of Kafka.")
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default=DEFAULTS["durability"],
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
def command(as_json: bool, **options: Any) -> None:
    """Serve a log directory to Kafka clients, until Ctrl-C or SIGTERM.

    DIR is a log.dir of klog, created if it does not exist, or that of a stopped broker after klog handover --adopt.
    Without DIR it serves the log.dirs of its properties. Without these, too, the broker is for tests: it serves a
    temporary directory, creates topics when a client asks for one, and removes everything at its end. By default it
    accepts connections from this machine only: without TLS and authentication every client that reaches it reads and
    writes all topics. With --json it prints one line once clients can connect.

    \b
    klog broker data --port 9092
    klog broker --port 0 --json | jq .bootstrap_servers
    klog broker --port 0 --control-port 0 --json | jq .control_url
    """
    from klog.cli.serving import serve

    if options["manual_clock"] and options["control_port"] is None:
        raise click.UsageError("--manual-clock needs --control-port: without it the time would never go on")
    for each in options["config"]:
        if "=" not in each:
            raise click.UsageError(f"--config {each}: K=V expected, as in auto.create.topics.enable=true")
    with usage_errors():
        serve(**arguments_of(as_json=as_json, **options), print_json=print_json if as_json else None)
