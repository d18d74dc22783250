"""Kafka's jars are fetched once, however many test processes need them."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tools import kafka_jars


def test_a_second_process_waits_and_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "HOME", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    fetches, again = [], threading.Event()

    def resolve(jars: kafka_jars.Jars, pom: Path) -> None:
        if fetches:
            again.set()
        fetches.append(jars.version)
        again.wait(0.5)
        jars.lib.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(kafka_jars, "_resolve", resolve)
    askers = [threading.Thread(target=kafka_jars.get, args=("4.1.0",)) for _ in range(2)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert fetches == ["4.1.0"]
