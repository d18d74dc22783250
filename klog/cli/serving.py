"""What `klog broker` does, without click, whose import takes as long as a third of the broker's start."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from klog._start import NoCollections
from klog.errors import KlogError
from klog.logger import write_warnings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klog.log.options import Durability

_TEST_CONFIG = {"auto.create.topics.enable": True}
# What a TestBroker has otherwise than a Broker.
_BROKER_CONFIG = {"auto.create.topics.enable": False, "num.io.threads": 8, "log.cleaner.threads": 1}


def serve(
    directory: str | None,
    *,
    listeners: list[str],
    default: str,
    properties: str | None,
    config: dict[str, str],
    durability: Durability,
    control_port: int | None,
    manual_clock: bool,
    tests: dict[str, Any],
    print_json: Callable[[dict[str, Any]], object] | None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. directory: None for the log.dirs of the properties, without any a
    temporary one. listeners: [] for those of the properties, or the default one. properties: the path of a
    server.properties. tests: arguments of a TestBroker. print_json: gets the addresses once clients can connect; None
    prints a line for people. Raises what Broker does."""
    write_warnings("klog: %(levelname)s %(name)s %(message)s")
    values: dict[str, Any] = {}
    if properties is not None:
        from klog.config.properties import read_properties

        values = _known(_without_controllers(read_properties(properties)))
    values |= config
    named = values.pop("listeners", "")
    listeners = listeners or [each.strip() for each in named.split(",") if each.strip()] or [default]
    arguments: dict[str, Any] = {"listeners": listeners, "durability": durability, **tests}
    is_test = bool(tests) or control_port is not None
    if control_port is not None:
        arguments |= {"control": True, "control_port": control_port, "clock": _manual() if manual_clock else None}
    given = _log_dirs(values) if directory is None and "copy_of" not in tests else directory
    if is_test and isinstance(given, list):
        raise ValueError(f"log.dirs={','.join(given)}: a broker for tests has one directory")
    ends = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
        ends.append(signal.SIGHUP)
    is_own = given is None and not is_test  # a TestBroker makes its directory itself
    with _blocked(*ends), _temporary() if is_own else nullcontext(given) as path:
        values = (_TEST_CONFIG if given is None else {}) | values
        _serve(_made(path, is_test, values, arguments), ends, _of_tests(arguments), print_json)


def _log_dirs(values: dict[str, Any]) -> str | list[str] | None:
    """The log.dirs of a broker's properties, of several a list. None without any."""
    from klog.config import BROKER_KEYS
    from klog.config.values import parse_value

    found = list(parse_value(BROKER_KEYS["log.dirs"], values.get("log.dirs") or values.get("log.dir") or ""))
    return found[0] if len(found) == 1 else found or None


def _made(path: str | list[str] | None, is_test: bool, config: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """A Broker, or a TestBroker with the properties of one."""
    if not is_test:
        assert path is not None
        with NoCollections():
            from klog.broker.broker import Broker

        return Broker(path, config=config, **arguments)
    from klog import TestBroker

    assert not isinstance(path, list)
    return TestBroker(directory=path, config=_BROKER_CONFIG | config, **arguments)


def _manual() -> Any:
    from klog.clock import ManualClock, SystemClock

    return ManualClock(SystemClock().wall_ms())


@contextmanager
def _blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Signals are blocked in all threads, and waited for: a handler could interrupt the wait at a moment when it holds
    the lock that the handler needs. One that comes while the broker stops asks for nothing more."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        while signal.sigtimedwait(set(numbers) - before, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _temporary() -> Iterator[str]:
    """A directory in memory where there is one, removed at the end."""
    from klog.testing.place import new_directory, remove_directory

    path = new_directory()
    try:
        yield path
    finally:
        remove_directory(path)


def _of_tests(arguments: dict[str, Any]) -> Callable[[Any], dict[str, str]]:
    """A function of the broker to the addresses and files that only a TestBroker with these arguments has."""

    def found(broker: Any) -> dict[str, str]:
        control = {"control_url": broker.control_url} if "control" in arguments else {}
        return {**control, "ca": broker.client_config()["ssl.ca.location"]} if "tls" in arguments else control

    return found


def _serve(
    broker: Any,
    ends: list[signal.Signals],
    of_tests: Callable[[Any], dict[str, str]],
    print_json: Callable[[dict[str, Any]], object] | None,
) -> None:
    """Serve until a signal of `ends`, which are blocked. SIGHUP reloads the certificates if there are any."""
    from klog.log import core

    reloads = [signal.SIGHUP] if broker.has_tls_files else []
    with _blocked(*reloads), broker:
        _announce(broker, of_tests(broker), print_json)
        with NoCollections():
            core.load()  # it served before, and opens no log without them
        gc.collect()
        gc.freeze()  # what is there now stays: later collections do not look at it
        while signal.sigwait({*ends, *reloads}) in reloads:
            _reload(broker)


def _reload(broker: Any) -> None:
    """Use new certificates; if they are not usable, go on with the old ones."""
    try:
        broker.reload_tls()
    except KlogError as error:
        sys.stderr.write(f"klog: certificates are not reloaded: {error}\n")


def _announce(broker: Any, more: dict[str, str], print_json: Callable[[dict[str, Any]], object] | None) -> None:
    from klog.network.listener import address_text

    addresses = [f"{each.name}://{address_text(each.host, each.port)}" for each in broker.listeners]
    if print_json is not None:
        facts = {
            "bootstrap_servers": broker.bootstrap_servers,
            "port": broker.port,
            "listeners": addresses,
            "directory": broker.logs.path,
            "node_id": broker.node_id,
            "pid": os.getpid(),
        }
        print_json(facts | more)
    else:
        control = f", with control at {more['control_url']}" if "control_url" in more else ""
        trusted = f", with a certificate of {more['ca']}" if "ca" in more else ""
        where = ", ".join(addresses)
        print(f"klog broker listens on {where} and serves {broker.logs.path}{control}{trusted}; Ctrl-C stops it")
    sys.stdout.flush()


def _without_controllers(values: dict[str, str]) -> dict[str, str]:
    """The properties of a file without listeners of a controller, which a node of KRaft may be, too."""
    controllers = {each.strip().upper() for each in values.get("controller.listener.names", "").split(",")}
    kept = dict(values)
    for name in kept.keys() & {"listeners", "advertised.listeners"}:
        addresses = kept[name].split(",")
        kept[name] = ",".join(each for each in addresses if each.partition("://")[0].strip().upper() not in controllers)
    return kept


def _known(values: dict[str, str]) -> dict[str, str]:
    """The properties of a server.properties that this broker takes; the others are named on stderr."""
    from klog.broker.properties import PROPERTY_NAMES, is_of_listener, known_properties

    names = known_properties(PROPERTY_NAMES) | {"listeners"}
    known = {name: value for name, value in values.items() if name in names or is_of_listener(name)}
    ignored = sorted(values.keys() - known)
    if ignored:
        sys.stderr.write(f"klog: ignored properties: {', '.join(ignored)}\n")
    return known
