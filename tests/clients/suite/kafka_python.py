"""kafka-python: the integration tests of its source distribution, with a broker that they do not start themselves."""

from __future__ import annotations

import re
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from tests.clients.servers import KAFKA_VERSION, Server
from tests.clients.suite.base import Outcome, Outcomes, Suite, command
from tests.support.archives import unpack

__all__ = ["SUITE"]

PACKAGE = "kafka-python==3.0.12"
VERSIONS = {"kafka": KAFKA_VERSION, "klog": "4.3.0"}  # what the client infers from the versions of the APIs
# The distribution lacks a module whose classes start brokers. Here the broker runs already, so the classes only have to
# exist.
_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass


class SpawnedService:
    pass
"""


def _prepare(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    command([*pip, PACKAGE, "-d", folder], cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        unpack(tar, folder)
    (unpacked,) = folder.glob("kafka_python-*/")
    source = unpacked.rename(folder / "src")
    (source / "test" / "__init__.py").touch()
    (source / "test" / "service.py").write_text(_SERVICE)
    for version in VERSIONS.values():
        (source / "servers" / version / "kafka-bin").mkdir(parents=True)


def _run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    arguments = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        "--timeout=120",
    ]
    arguments += ["test/integration", "--deselect=test/integration/test_sasl_integration.py"]
    arguments += ["--deselect=test/integration/test_ssl_integration.py"]  # these start brokers themselves
    if only or without:
        wanted = " or ".join(only) or "test"
        unwanted = "".join(f" and not {each}" for each in without)
        arguments += ["-k", f"({wanted}){unwanted}"]
    environment = {"KAFKA_URI": f"kafka://{server.bootstrap}", "KAFKA_VERSION": VERSIONS[server.kind], "PYTHONPATH": ""}
    command(arguments, cwd=folder / "src", log=log, env=environment, check=False, timeout=1500)
    assert report.exists(), f"no report; see {log}"
    return outcomes(report.read_text())


def outcomes(report: str) -> Outcomes:
    """The outcomes in a JUnit report of pytest, by module and test. A module that cannot be imported is one failed test."""
    found: Outcomes = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        module = str(case.get("classname")).rpartition(".")[2]
        name = f"{module}::{re.sub(r'-[^]]*object at[^]]*', '', str(case.get('name')))}"
        outcome: Outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif case.find("skipped") is not None:
            outcome = "skipped"
        found[name] = outcome
    return found


SUITE = Suite(
    "kafka-python",
    PACKAGE,
    _prepare,
    _run,
    {
        "auto.create.topics.enable": "true",
        "num.partitions": 4,
        "group.min.session.timeout.ms": 100,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
)
