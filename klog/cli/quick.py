"""`klog broker` without click: its import would be a third of the broker's start.

A command line that is not a plain one is left to click: help, completion, a mistake, an abbreviation.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from klog.cli.streams import discard_stdout, json_text, prepare_streams, print_any_name, print_json_as_utf_8
from klog.errors import KlogError

PORT_MAX, BROKERS_MAX = 65535, 100
# option: (parameter of the command, how often it may come)
_ONE, _MANY, _FLAG = "one", "many", "flag"
OPTIONS = {
    "--host": ("host", _ONE),
    "--port": ("port", _ONE),
    "--listener": ("listeners", _MANY),
    "--properties": ("properties", _ONE),
    "--config": ("config", _MANY),
    "--durability": ("durability", _ONE),
    "--control-port": ("control_port", _ONE),
    "--manual-clock": ("manual_clock", _FLAG),
    "--brokers": ("brokers", _ONE),
    "--as-version": ("as_version", _ONE),
    "--copy-of": ("copy_of", _ONE),
    "--record": ("record", _ONE),
    "--tls": ("tls", _FLAG),
    "--sasl": ("sasl", _MANY),
    "--mechanism": ("mechanism", _ONE),
    "--json": ("as_json", _FLAG),
}
# Those that klog.TestBroker has under the same names.
OF_TESTS: dict[str, Any] = {
    "brokers": 1,
    "as_version": None,
    "copy_of": None,
    "record": None,
    "tls": False,
    "sasl": (),
    "mechanism": None,
}
DEFAULTS: dict[str, Any] = {
    **OF_TESTS,
    "directory": None,
    "host": None,
    "port": None,
    "listeners": (),
    "properties": None,
    "config": (),
    "durability": "os",
    "control_port": None,
    "manual_clock": False,
    "as_json": False,
}
HOST, PORT = "127.0.0.1", 9092  # unless an option or a property names others
DURABILITIES = ("os", "interval", "sync")


def parsed(words: list[str]) -> dict[str, Any] | None:
    """The parameters of the command; None for a command line that click is to parse."""
    found, words = dict(DEFAULTS), list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            if not word or found["directory"] is not None or os.path.isfile(word):
                return None
            found["directory"] = word
            continue
        option, separator, value = word.partition("=")
        name, kind = OPTIONS.get(option, (None, None))
        if name is None or (kind is _FLAG and separator):
            return None
        if kind is _FLAG:
            found[name] = True
            continue
        if not separator:
            if not words:
                return None
            value = words.pop(0)
        if kind is _MANY:
            found[name] = (*found[name], value)
        elif name == "brokers" or name.endswith("port"):
            low, high = (1, BROKERS_MAX) if name == "brokers" else (0, PORT_MAX)
            if not (value.isascii() and value.isdigit() and len(value) <= 5 and low <= int(value) <= high):
                return None
            found[name] = int(value)
        else:
            found[name] = value
    return found if _is_plain(found) else None


def _is_plain(found: dict[str, Any]) -> bool:
    return (
        found["durability"] in DURABILITIES
        and all("=" in each for each in found["config"])
        and (found["properties"] is None or os.path.isfile(found["properties"]))
        and not (found["manual_clock"] and found["control_port"] is None)
        and all("=" in each for each in found["sasl"])
        and (found["copy_of"] is None or (found["directory"] is None and os.path.isdir(found["copy_of"])))
        and (found["record"] is None or not os.path.isdir(found["record"]))
    )


def arguments_of(
    *,
    host: str | None,
    port: int | None,
    listeners: tuple[str, ...],
    config: tuple[str, ...],
    as_json: bool,
    **others: Any,
) -> dict[str, Any]:
    """The arguments of klog.cli.serving.serve(), but for print_json, from the parameters of the command."""
    settings = {}
    for each in config:
        name, _, value = each.partition("=")
        settings[name.strip()] = value.strip()
    addresses = list(listeners)
    if not addresses and (host, port) != (None, None):
        from klog.network.listener import address_text

        addresses = [address_text(HOST if host is None else host, PORT if port is None else port)]
    tests = {name: value for name in OF_TESTS if (value := others.pop(name)) != OF_TESTS[name]}
    if "sasl" in tests:
        tests["sasl"] = dict(each.split("=", 1) for each in tests["sasl"])
    return {**others, "listeners": addresses, "default": f"{HOST}:{PORT}", "config": settings, "tests": tests}


def run(words: list[str]) -> int | None:
    """Call `klog broker`. Returns its exit code; None for a command line that click is to parse."""
    found = parsed(words) if "_KLOG_COMPLETE" not in os.environ else None
    if found is None:
        return None
    if not prepare_streams():
        return 1
    print_any_name()
    if found["as_json"]:
        print_json_as_utf_8()
    began_json = False

    def print_json(value: dict[str, Any]) -> None:
        nonlocal began_json
        began_json = True
        print(json_text(value))

    from klog.cli.serving import serve

    try:
        serve(**arguments_of(**found), print_json=print_json if found["as_json"] else None)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except (KeyboardInterrupt, KlogError, OSError, ValueError) as error:
        import click

        from klog.cli.group import cli, failed

        problem: BaseException = error
        if type(error) is ValueError:  # of an argument, as an address
            with click.Context(cli, info_name="klog") as group:
                command = cli.get_command(group, "broker")
            context = click.Context(command, info_name="broker", parent=group)  # type: ignore[arg-type]
            problem = click.UsageError(str(error), context)
        return failed(problem, as_json=found["as_json"] and not began_json)
    return 0
