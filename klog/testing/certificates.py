"""A certificate authority for tests, and a certificate of this machine's loopback names that it has signed.

Both are made by the program `openssl` once for each process, are valid for a few days, and are in a directory of their
own, which only this user can read: ca.pem for clients, and server.pem, the broker's key and certificate.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from klog.scratch import scratch_directory

CA, SERVER = "ca.pem", "server.pem"
_DAYS = 7
_SECONDS = 30
_NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
_REQUEST = "[req]\ndistinguished_name=names\nprompt=no\n[names]\nCN={name}\n"
_AUTHORITY = """
[extensions]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
"""
_LEAF = """
[extensions]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


def write_certificates(directory: str) -> None:
    """Write ca.pem and server.pem into a directory. Raises RuntimeError if there is no openssl, or if it fails."""
    authority, server = _certificates()
    for name, data in ((CA, authority), (SERVER, server)):
        with open(os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)


@functools.cache
def _certificates() -> tuple[bytes, bytes]:
    """(the authority's certificate, the server's key and certificate), in PEM."""
    program = shutil.which("openssl")
    if program is None:
        raise RuntimeError("tls=True: the program `openssl` makes the certificates, and it is not in the PATH")
    with scratch_directory("klog-test-tls-") as home:
        for name, text in (
            ("ca.cnf", _REQUEST.format(name="klog test authority") + _AUTHORITY),
            ("server.cnf", _REQUEST.format(name="localhost") + _LEAF),
        ):
            with open(os.path.join(home, name), "w") as file:
                file.write(text)
        for command in (
            f"req -x509 {_NEW_KEY} -days {_DAYS} -config ca.cnf -extensions extensions -keyout ca.key -out ca.pem",
            f"req -new {_NEW_KEY} -config server.cnf -keyout server.key -out server.csr",
            f"x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {_DAYS} -sha256"
            " -extfile server.cnf -extensions extensions -out server.crt",
        ):
            done = subprocess.run(
                [program, *command.split()], cwd=home, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
            if done.returncode:
                raise RuntimeError(f"tls=True: openssl {command} failed: {done.stderr.strip()}")
        return _read(home, "ca.pem"), _read(home, "server.key") + _read(home, "server.crt")


def _read(home: str, name: str) -> bytes:
    with open(os.path.join(home, name), "rb") as file:
        return file.read()
