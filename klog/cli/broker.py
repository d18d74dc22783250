"""klog broker [DIR]"""

from __future__ import annotations

from typing import Any

import click

from klog.cli.output import json_option, print_json, usage_errors
from klog.cli.quick import BROKERS_MAX, DEFAULTS, DURABILITIES, HOST, PORT, PORT_MAX, arguments_of


@click.command("broker")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option("--host", show_default=HOST, help="Address to listen on.")
@click.option("--port", show_default=str(PORT), type=click.IntRange(0, PORT_MAX), help="0: a free one.")
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
    type=click.IntRange(0, PORT_MAX),
    help="For tests: a port of this machine to control the broker over HTTP; 0: a free one.",
)
@click.option("--manual-clock", is_flag=True, help="For tests: time stands still until the control advances it.")
@click.option(
    "--brokers",
    metavar="N",
    default=DEFAULTS["brokers"],
    type=click.IntRange(1, BROKERS_MAX),
    help="For tests: the number of brokers that clients see; their ports follow each other.",
)
@click.option("--as-version", metavar="VERSION", help="For tests: pass for Kafka 2.8, 3.0, 3.9, 4.0 or 4.1.")
@click.option(
    "--copy-of",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="For tests: serve a copy of this log.dir, of klog or of Kafka.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="For tests: a new file for all requests, for klog.testing.replay.",
)
@click.option("--tls", is_flag=True, help="For tests: encrypt, with a new certificate; --json has its ca.")
@click.option(
    "--sasl", metavar="USER=PASSWORD", multiple=True, help="For tests: a user. Others on this machine may see it."
)
@click.option(
    "--mechanism", metavar="NAME", help="For tests: SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN.  [default: SCRAM-SHA-256]"
)
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
    klog broker --port 0 --control-port 0 --brokers 3 --as-version 3.9 --json
    """
    from klog.cli.serving import serve

    if options["manual_clock"] and options["control_port"] is None:
        raise click.UsageError("--manual-clock needs --control-port: without it the time would never go on")
    for each in options["config"]:
        if "=" not in each:
            raise click.UsageError(f"--config {each}: K=V expected, as in auto.create.topics.enable=true")
    if not all("=" in each for each in options["sasl"]):
        raise click.UsageError("--sasl: USER=PASSWORD expected")
    if options["copy_of"] is not None and options["directory"] is not None:
        raise click.UsageError("DIR and --copy-of: one of the two")
    with usage_errors():
        serve(**arguments_of(as_json=as_json, **options), print_json=print_json if as_json else None)
