"""TestBroker(control=True) and `klog broker --control-port`: a broker under the control of a test in any language."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from klog.clock import ManualClock
from klog.testing import TestBroker
from klog.testing.waiting import wait_for
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient
from tests.testing.test_group import CONFIG, join
from tests.testing.test_test_broker import produce


def call(url: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """Send a request. Return the status and the JSON object of the response."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, parts.path + path, data, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_faults() -> None:
    with TestBroker(topics=["orders"], control=True) as b, WireClient(b.bootstrap_servers) as client:
        status, fault = call(b.control_url, "POST", "/faults", {"api": "produce", "error": "NOT_LEADER_OR_FOLLOWER"})
        fields = {"id": 1, "api": "produce", "error": "NOT_LEADER_OR_FOLLOWER"}
        assert (status, fault) == (200, {**fields, "hits": 0, "is_active": True})
        assert call(b.control_url, "GET", "/faults/1?wait=1&timeout=0.01")[0] == 408
        assert [produce(client, b"x"), produce(client, b"y")] == [6, 0]
        ended = {**fields, "hits": 1, "is_active": False}
        hit = {
            "api": "produce",
            "version": 9,
            "client_id": "test",
            "broker": 1,
            "partitions": [{"topic": "orders", "partition": None}, {"topic": "orders", "partition": 0}],
        }
        assert call(b.control_url, "GET", "/faults/1?wait=1") == (200, {**ended, "requests": [hit]})
        assert call(b.control_url, "POST", "/faults", {"drop": True, "count": None})[1]["id"] == 2
        assert call(b.control_url, "DELETE", "/faults/2")[1] == {"id": 2, "drop": True, "hits": 0, "is_active": False}
        assert call(b.control_url, "GET", "/faults")[1]["faults"][0] == ended
        assert call(b.control_url, "DELETE", "/faults") == (200, {})
        assert call(b.control_url, "GET", "/faults/1")[0] == 404
        assert produce(client, b"z") == 0


def test_records_of_topics() -> None:
    with TestBroker(control=True) as b:
        assert call(b.control_url, "POST", "/topics", {"name": "orders", "partitions": 2})[1]["partitions"] == [0, 1]
        records: list[dict[str, Any]] = [
            {"key": "a", "value": "é", "timestamp": 1_700_000_000_000, "headers": [{"key": "h", "value": None}]},
            {"key_b64": "/w==", "value": None},
        ]
        assert call(b.control_url, "POST", "/topics/orders/records", {"records": records}) == (200, {"appended": 2})
        status, found = call(b.control_url, "GET", "/topics/orders/records?wait=2")
        assert status == 200
        first, second = sorted(found["records"], key=lambda each: "key_b64" in each)
        assert {name: first[name] for name in records[0]} == records[0]
        assert (second["key_b64"], second["value"]) == ("/w==", None)
        one = call(b.control_url, "GET", f"/topics/orders/records?partition={first['partition']}")[1]["records"]
        assert first in one
        assert call(b.control_url, "GET", "/topics")[1] == {"orders": [0, 1]}
        assert call(b.control_url, "GET", "/metrics")[1]["ConnectionCount"] == 0


def test_requests_are_held_and_watched() -> None:
    with TestBroker(topics=["orders"], control=True) as b, WireClient(b.bootstrap_servers) as client:
        assert call(b.control_url, "POST", "/watches", {"topic": "orders"})[1]["id"] == 1
        assert call(b.control_url, "POST", "/faults", {"api": "produce", "hold": True})[1]["id"] == 2
        sender = threading.Thread(target=produce, args=(client, b"v"))
        sender.start()
        assert call(b.control_url, "GET", "/faults/2?wait=1&timeout=240")[0] == 200
        assert call(b.control_url, "POST", "/faults/2/release")[1]["hits"] == 1
        sender.join()
        assert b.topic("orders").values() == [b"v"]
        assert [each["api"] for each in call(b.control_url, "GET", "/watches/1?wait=1")[1]["requests"]] == ["produce"]
        assert call(b.control_url, "DELETE", "/watches/1")[1]["is_active"] is False
        assert call(b.control_url, "GET", "/watches")[1]["watches"][0]["topic"] == "orders"


def test_a_torn_log(tmp_path: Path) -> None:
    with TestBroker(topics={"orders": 2}, control=True) as b:
        url = b.control_url
        call(url, "POST", "/topics/orders/records", {"records": [{"value": each, "partition": 1} for each in "ab"]})
        assert b.topic("orders").values(1) == [b"a", b"b"]
        assert call(url, "POST", "/tear", {"topic": "orders", "partition": 1})[0] == 409
        call(url, "POST", "/kill")
        assert call(url, "POST", "/tear", {"topic": "orders", "partition": 1, "last_bytes": 3}) == (200, {})
        assert call(url, "POST", "/tear", {"topic": "other"})[0] == 404
        call(url, "POST", "/start")
        assert b.topic("orders").values(1) == []  # there was one batch, which is torn
        (tmp_path / "orders.jsonl").write_text('{"id": "1", "state": "paid"}\n')
        body = {"path": str(tmp_path / "orders.jsonl"), "key": "id"}
        assert call(url, "POST", "/topics/loaded/load", body) == (200, {"records": 1})
        assert call(url, "POST", "/topics/loaded/load", {**body, "progress": 1})[0] == 400
        assert call(url, "POST", "/topics/loaded/load", {"path": str(tmp_path / "missing.jsonl")})[0] == 404
        assert call(url, "GET", "/dump")[1]["text"].startswith("topic loaded: 1 records\n  0/0 b'1': ")


def test_start_stop_and_snapshots(tmp_path: Path) -> None:
    with TestBroker(topics=["orders"], control=True) as b:
        url = b.control_url
        b.topic("orders").append([(b"k", b"kept")])
        assert call(url, "POST", "/snapshot", {"path": str(tmp_path / "s")})[1]["is_running"] is True
        b.topic("orders").append([(b"k", b"dropped")])
        assert call(url, "POST", "/kill")[1]["bootstrap_servers"] is None
        assert call(url, "GET", "/topics") == (
            409,
            {
                "error": "RuntimeError",
                "message": "the broker is stopped: call start(), or use it in a `with` statement",
            },
        )
        assert call(url, "POST", "/start")[1]["is_running"] is True
        assert call(url, "POST", "/restart")[1]["is_running"] is True
        assert call(url, "POST", "/restore", {"path": str(tmp_path / "s")})[0] == 200
        assert b.topic("orders").values() == [b"kept"]
        assert call(url, "POST", "/restore", {"path": str(tmp_path / "other")})[0] == 404
        assert call(url, "POST", "/snapshot", {"path": str(tmp_path / "s")})[0] == 409
        assert b.is_running
        assert call(url, "POST", "/stop")[1]["is_running"] is False
    with pytest.raises(ConnectionError):
        call(url, "GET", "")


def test_groups_and_several_brokers() -> None:
    with TestBroker(topics=["orders"], config=CONFIG, control=True, brokers=2) as b:
        by_id = dict(zip(b.broker_ids, b.bootstrap_servers.split(","), strict=True))
        assert call(b.control_url, "GET", "")[1]["brokers"] == [1, 2]
        codes = []
        for address in by_id.values():
            with WireClient(address) as client:
                codes.append(join(client, "billing", "orders").error_code)
        assert sorted(codes) == [0, 16]
        b.topic("orders").append([(b"k", b"v")])
        status, found = call(b.control_url, "GET", "/groups/billing?members=1&topic=orders")
        assert call(b.control_url, "GET", "/groups")[1] == {"groups": ["billing"]}
        assert (status, found["state"], found["lag"], found["offsets"]) == (200, "Stable", 1, [])
        assert found["members"][0]["partitions"] == {"orders": [0]}
        assert call(b.control_url, "GET", "/groups/billing?topic=orders&lag=0&timeout=0.01")[0] == 408
        assert call(b.control_url, "POST", "/brokers/2/stop")[1]["bootstrap_servers"] == by_id[1]
        assert call(b.control_url, "POST", "/brokers/1/stop")[0] == 400
        assert call(b.control_url, "POST", "/brokers/2/start")[0] == 200


def test_the_clock() -> None:
    with TestBroker(clock=ManualClock(1000), control=True) as b:
        assert call(b.control_url, "POST", "/clock/advance", {"ms": 500}) == (200, {"wall_ms": 1500})
    with TestBroker(control=True) as b:
        assert call(b.control_url, "POST", "/clock/advance", {"ms": 500})[0] == 409


def test_invalid_requests() -> None:
    with TestBroker(topics=["orders"], control=True) as b:
        url = b.control_url
        for method, path, body, status in (
            ("GET", "/nothing", None, 404),
            ("PUT", "/faults", None, 501),
            ("GET", "/faults/x", None, 400),
            ("POST", "/faults", b"{", 400),
            ("POST", "/faults", b"[" * 100_000, 400),
            ("POST", "/faults", [], 400),
            ("POST", "/faults", {"api": "produse", "drop": True}, 400),
            ("POST", "/faults", {"bits": 1}, 400),
            ("POST", "/faults", {"drop": True, "when": "always"}, 400),
            ("POST", "/faults/1/release", None, 404),
            ("GET", "/watches/1", None, 404),
            ("POST", "/tear", {}, 400),
            ("POST", "/topics/orders/records", {"records": [{"value": "v", "partition": -1}]}, 400),
            ("POST", "/topics/orders/records", {"records": [{"value": "v", "partition": 7}]}, 400),
            ("POST", "/topics", {}, 400),
            ("POST", "/topics", {"name": "orders"}, 400),
            ("POST", "/topics/orders/records", {"records": [{"value": 1}]}, 400),
            ("POST", "/topics/orders/records", {"records": [{"value_b64": "?"}]}, 400),
            ("POST", "/topics/orders/records", {"records": [{"valeu": "1"}]}, 400),
            ("POST", "/topics/orders/records", {"records": {}}, 400),
            ("GET", "/topics/other/records", None, 404),
            ("GET", "/topics/orders/records?wait=-1", None, 400),
            ("GET", "/topics/orders/records?isolation=x", None, 400),
            ("GET", "/groups/g?state=Stable&timeout=soon", None, 400),
            ("POST", "/clock/advance", {}, 409),
        ):
            found = call(url, method, path, body)
            assert (method, path, found[0]) == (method, path, status)
            assert found[1].keys() == {"error", "message"}


def handling() -> list[str]:
    """Return the names of the threads of http.server that handle requests."""
    return [each.name for each in threading.enumerate() if "process_request" in each.name]


def test_a_client_that_does_not_wait_for_its_response_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with TestBroker(topics=["t"], control=True) as b:
        parts = urlsplit(b.control_url)
        with socket.create_connection((parts.hostname, parts.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            path = f"{parts.path}/topics/t/records?wait=1&timeout=240"
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            wait_for(lambda: bool(handling()), PATIENCE, lambda: "no request arrived")
        b.topic("t").append([(b"k", b"what the request waits for")])
        wait_for(lambda: not handling(), PATIENCE, lambda: "the request goes on")
        assert call(b.control_url, "GET", "/faults") == (200, {"faults": []})
    assert capfd.readouterr().err == ""


def test_connections_that_clients_keep_end_with_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.testing.control._Handler.timeout", None)
    with TestBroker(control=True) as b:
        parts = urlsplit(b.control_url)
        idle, half = (socket.create_connection((parts.hostname, parts.port), PATIENCE) for _ in range(2))
        idle.sendall(f"GET {parts.path}/faults HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 OK")
        half.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
        wait_for(lambda: len(handling()) == 2, PATIENCE, lambda: "a connection is not accepted")
    with idle, half:
        while idle.recv(1000):  # the rest of the response
            pass
        wait_for(lambda: not handling(), PATIENCE, lambda: "a connection goes on")


def test_requests_of_web_pages_and_without_the_secret_path_are_refused() -> None:
    with TestBroker(control=True) as b:
        parts = urlsplit(b.control_url)
        assert call(b.control_url, "POST", "/kill", Host=f"evil.example:{parts.port}")[0] == 403
        assert call(b.control_url, "POST", "/kill", Origin="http://evil.example")[0] == 403
        assert call(f"http://127.0.0.1:{parts.port}/guessed", "POST", "/kill")[0] == 404
        assert call(f"http://127.0.0.1:{parts.port}", "GET", "/")[0] == 404
        assert b.is_running
        assert call(b.control_url, "GET", "", Host=f"localhost:{parts.port}")[0] == 200
        with socket.create_connection(("127.0.0.1", parts.port or 0), timeout=PATIENCE) as raw:
            raw.sendall(f"POST {parts.path}/faults HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".encode())
            assert b" 413 " in raw.recv(100)
        with socket.create_connection(("127.0.0.1", parts.port or 0), timeout=PATIENCE) as raw:
            raw.sendall(b"GET /".ljust(65537, b"x"))  # one byte more than http.server reads, and nothing after it
            with raw.makefile("rb") as reader:
                response = reader.read()
            assert b" 414 " in response
            assert json.loads(response.split(b"\r\n\r\n")[1]) == {"error": "Refused", "message": "Request-URI Too Long"}


def test_a_broker_of_another_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "klog.cli", "broker", "--port", "0", "--control-port", "0", "--json"]
    process = subprocess.Popen([*command, "--manual-clock"], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert process.stdout is not None
        lines = ""
        while not lines.endswith("}\n"):
            lines += process.stdout.readline()
        facts = json.loads(lines)
        url = facts["control_url"]
        call(url, "POST", "/topics/orders/records", {"records": [{"value": "v"}]})
        assert call(url, "GET", "/topics/orders/records")[1]["records"][0]["value"] == "v"
        assert call(url, "POST", "/clock/advance", {"ms": 1})[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert not Path(facts["directory"]).exists()
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
    done = subprocess.run(
        [sys.executable, "-m", "klog.cli", "broker", "--manual-clock"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--control-port" in done.stderr


def test_without_control_there_is_no_url() -> None:
    with TestBroker() as b, pytest.raises(RuntimeError, match="control=True"):
        _ = b.control_url
