"""TLS over a pair of sockets, with a self-signed certificate that exists as long as the process."""

from __future__ import annotations

import functools
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.sockets import tcp_pair


@functools.cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's SSL contexts."""
    if shutil.which("openssl") is None:
        pytest.skip("needs: openssl")
    with tempfile.TemporaryDirectory(prefix="klog-tls-") as folder:
        key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        )
        files = ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*command.split(), *files], check=True, capture_output=True)
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.load_cert_chain(certificate, key)
        client.load_verify_locations(certificate)
    return server, client


def tls_pair() -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """The server's end and the client's, after their handshake."""
    server, client = contexts()
    plain, other = tcp_pair()
    ends: list[ssl.SSLSocket] = []

    def connect(sock: socket.socket) -> None:
        ends.append(client.wrap_socket(sock, server_hostname="localhost"))

    thread = threading.Thread(target=connect, args=(other,))
    thread.start()
    ours = server.wrap_socket(plain, server_side=True)
    thread.join()
    return ours, ends[0]


class Keys(NamedTuple):
    """The files of a certificate."""

    certificate: Path
    key: Path
    trusting: ssl.SSLContext  # of a client that trusts the certificate


def made(folder: Path, subject: str) -> Keys:
    """A new key with its own certificate, in files."""
    if shutil.which("openssl") is None:
        pytest.skip("needs: openssl")
    folder.mkdir()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -utf8 -multivalue-rdn -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", subject, "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    key.chmod(0o600)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(certificate)
    return Keys(certificate, key, trusting)
