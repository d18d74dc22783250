"""`klog broker`: its start without click, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from kafka import KafkaAdminClient

import klog
from klog.cli import quick
from klog.cli.broker import command
from tests.support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PLAIN = [
    "",
    "data",
    "data --port 0 --json",
    "--port=0 --host=::1 data",
    "--listener A://127.0.0.1:1 --listener=B://127.0.0.1:2 --config a=b --config c=d=e --config f=",
    "--durability sync --properties {file} --control-port 0 --manual-clock",
    "--brokers 3 --as-version 3.9 --copy-of {folder} --record new.jsonl",
    "--tls --sasl a=b --sasl=c=d=e --mechanism PLAIN",
]
LEFT_TO_CLICK = [
    "--help",
    "-h",
    "a b",
    "--port",
    "--port x",
    "--port 65536",
    "--port -1",
    f"--port {'9' * 5000}",
    "--por 1",
    "--json=1",
    "--durability no",
    "--properties gone",
    "--config x",
    "--manual-clock",
    "--brokers 0",
    "--brokers 101",
    "--copy-of gone",
    "--copy-of {folder} data",
    "--record {folder}",
    "--sasl a",
    "-- data",
    "{file}",
    "--unknown",
]


def words(line: str, tmp_path: Path) -> list[str]:
    (tmp_path / "server.properties").write_text("")
    return line.format(file=tmp_path / "server.properties", folder=tmp_path).split()


@contextmanager
def running(*arguments: Path | str) -> Iterator[subprocess.Popen[bytes]]:
    """The running command, after it has begun to serve."""
    with announced(*arguments) as (process, _):
        yield process


@contextmanager
def announced(
    *arguments: Path | str, address: tuple[str, ...] = ("--port", "0")
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The running command, and what it has printed."""
    command = [sys.executable, "-m", "klog", "broker", *map(str, arguments), *address, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            assert facts["pid"] == process.pid
            yield process, facts
        finally:
            process.kill()


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_command_line_means_what_it_means_to_click(line: str, tmp_path: Path) -> None:
    with command.make_context("broker", words(line, tmp_path)) as context:
        assert quick.parsed(words(line, tmp_path)) == context.params


@pytest.mark.parametrize("line", LEFT_TO_CLICK)
def test_any_other_command_line_is_left_to_click(line: str, tmp_path: Path) -> None:
    assert quick.parsed(words(line, tmp_path)) is None


def test_every_option_is_known_to_the_short_way() -> None:
    options = {name for each in command.params if isinstance(each, click.Option) for name in each.opts}
    assert options == set(quick.OPTIONS)
    assert {each.name for each in command.params} == set(quick.DEFAULTS)


def test_an_error_is_reported_as_by_every_verb(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = subprocess.run(
        [sys.executable, "-m", "klog", "broker", "--port", "0", "--json", "--config", "no.such=1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
    )
    assert run.returncode == 2
    assert "unknown broker property 'no.such'" in run.stderr
    assert json.loads(run.stdout)["error"]["type"] == "InvalidConfig"


@pytest.mark.parametrize(
    "line",
    [
        "authorizer.class.name=other.Authorizer",
        "sasl.enabled.mechanisms=GSSAPI",
        "listener.security.protocol.map=PLAINTEXT:NONE",
        "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT",
        "super.users=admin",
        "listener.name.plaintext.sasl.enabled.mechanisms=GSSAPI",
        "listener.name.other.ssl.client.auth=required",
        "sasl.kerberos.service.name=kafka",
    ],
)
def test_the_security_that_a_file_configures_is_not_left_out(line: str, tmp_path: Path) -> None:
    """An invalid value shows that the broker reads it. A broker that ignored it would serve everybody."""
    file = tmp_path / "server.properties"
    file.write_text(f"{line}\n")
    run = subprocess.run(
        [sys.executable, "-m", "klog", "broker", "--port", "0", "--properties", str(file)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
    )
    assert run.returncode == 2, run.stderr
    assert line.partition("=")[0] in run.stderr and "ignored" not in run.stderr


def test_the_log_dirs_of_a_file_are_served_without_dir(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={first}, {second}\n")
    with running("--properties", file, "--config", "auto.create.topics.enable=true") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert (first / ".kafka_cleanshutdown").exists() and (second / ".kafka_cleanshutdown").exists()
    with running("--config", f"log.dir={tmp_path / 'third'}", "--control-port", "0"):
        assert (tmp_path / "third" / ".lock").exists()
    with running(tmp_path / "fourth", "--properties", file) as process:
        assert (tmp_path / "fourth" / ".lock").exists(), "DIR replaces the log.dirs"


def test_the_listeners_of_a_file_are_used_unless_an_option_names_others(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\n"
        "controller.listener.names=CONTROLLER\n"
        "listeners=INSIDE://127.0.0.1:0, OUTSIDE://127.0.0.1:0, CONTROLLER://:9093\n"
        "advertised.listeners=OUTSIDE://localhost:19092,CONTROLLER://localhost:9093\n"
        "inter.broker.listener.name=INSIDE\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT\n"
    )
    with announced("--properties", file, address=()) as (_, facts):
        inside, outside = (each.partition("://") for each in facts["listeners"])
        assert (inside[0], outside[0]) == ("INSIDE", "OUTSIDE")
        assert facts["bootstrap_servers"] == f"{inside[2]},localhost:19092"
    for option in (("--listener", "OUTSIDE://127.0.0.1:0"), ("--config", "listeners=OUTSIDE://127.0.0.1:0")):
        with announced("--properties", file, address=option) as (_, facts):
            assert facts["listeners"] == [f"OUTSIDE://127.0.0.1:{facts['port']}"]


def test_an_argument_that_the_broker_refuses_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "klog", "broker", "--listener", "nowhere"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    usage = "Usage: klog broker [OPTIONS] [DIR]\nTry 'klog broker --help' for help.\n\n"
    assert (run.returncode, run.stderr) == (2, f"{usage}Error: listener='nowhere': host:port expected\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_and_interrupts_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """Signals are blocked in each thread: a handler could need a lock that the interrupted thread holds. While the main
    thread waits for them the kernel shows them as not blocked there."""
    with action(number, signal.SIG_DFL), running(tmp_path / "data") as process:
        masks = blocked(process)
        assert masks
        assert all(mask >> (number - 1) & 1 for mask in masks)
        os.kill(process.pid, number)
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_nohup_keeps_it_running(tmp_path: Path) -> None:
    """The kernel drops a signal that is ignored, but not one that is blocked, too."""
    with action(signal.SIGHUP, signal.SIG_IGN), running(tmp_path / "data") as process:
        assert not any(mask >> (signal.SIGHUP - 1) & 1 for mask in blocked(process))


@contextmanager
def action(number: signal.Signals, wanted: signal.Handlers | Callable[..., object]) -> Iterator[None]:
    """What a process that is started meanwhile inherits, whether or not the tests run under nohup."""
    before = signal.signal(number, wanted)
    try:
        yield
    finally:
        signal.signal(number, before)


def blocked(process: subprocess.Popen[bytes]) -> list[int]:
    """The signals that each thread but the main one blocks."""
    masks = []
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        if thread != str(process.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                status = Path(f"/proc/{process.pid}/task/{thread}/status").read_text()
                masks.append(int(re.findall(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)[0], 16))
    return masks


def test_a_second_signal_does_not_interrupt_the_end() -> None:
    """A Ctrl-C and then a SIGTERM, from an impatient user or from a supervisor: the temporary directory is still
    removed."""
    command = [sys.executable, "-m", "klog", "broker", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            directory = json.loads(process.stdout.readline())["directory"]
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
                os.kill(process.pid, number)
            assert process.wait(PATIENCE) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()
    assert not os.path.exists(directory)


def test_a_broker_for_tests_in_other_languages(tmp_path: Path) -> None:
    with klog.open(tmp_path / "production", create=True) as logs:
        logs.create_topic("orders")
    recording = tmp_path / "requests.jsonl"
    options = ["--brokers", "2", "--as-version", "3.9", "--tls", "--sasl", "alice=a=b", "--mechanism", "PLAIN"]
    with announced(*options, "--copy-of", tmp_path / "production", "--record", recording) as (process, facts):
        first, second = facts["bootstrap_servers"].split(",")
        assert (facts["port"], facts["listeners"]) == (int(first.rpartition(":")[2]), [f"SASL_SSL://{first}"])
        with closing(
            KafkaAdminClient(
                bootstrap_servers=second,
                security_protocol="SASL_SSL",
                ssl_cafile=facts["ca"],
                sasl_mechanism="PLAIN",
                sasl_plain_username="alice",
                sasl_plain_password="a=b",
            )
        ) as admin:
            assert [each["broker_id"] for each in admin.describe_cluster()["brokers"]] == [1, 2]
            assert admin.list_topics() == ["orders"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert not Path(facts["directory"]).exists() and not Path(facts["ca"]).exists()
    assert "DESCRIBE_CLUSTER" in recording.read_text()
