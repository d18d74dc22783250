"""A broker in a process of its own, that can be killed, paused and started again on the same directory and port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.support.file_systems import end_with_parent
from tests.support.patience import PATIENCE
from tests.support.sockets import KeptPort


class BrokerProcess:
    """Starts and stops the process. For one thread. log: the stderr output of all starts."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.directory = directory
        self.config = config
        self._port = KeptPort()
        self.port = self._port.number
        self.log = directory.parent / f"{directory.name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start the broker. Returns when it serves requests."""
        settings = [part for key, value in self.config.items() for part in ("--config", f"{key}={value}")]
        command = [
            sys.executable,
            "-P",
            "-m",
            "klog",
            "broker",
            str(self.directory),
            "--port",
            str(self.port),
            "--json",
        ]
        parent = os.getpid()
        with self.log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command, *settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                preexec_fn=lambda: end_with_parent(parent),
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the broker does not start:\n{self.log.read_text()}"
        assert json.loads(line)["port"] == self.port
        return self

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """Stop the broker. Returns its exit status; None if it was not running."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self, seconds: float) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def rss_kib(self) -> int:
        """The resident memory of the process now, in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def _end(self, number: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            return process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()
