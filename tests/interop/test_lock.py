"""The lock of a log directory works between klog and a live JVM, in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.errors import AlreadyLocked
from tests.interop.kafka import KafkaClasses

pytestmark = [pytest.mark.java, pytest.mark.deep]


def test_a_brokers_lock_excludes_klog(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    klog.open(tmp_path, create=True).close()
    lock = tmp_path / ".lock"
    assert kafka_classes.try_lock(lock)
    try:
        with pytest.raises(AlreadyLocked):
            klog.open(tmp_path)
        klog.open(tmp_path, read_only=True).close()  # readers take no lock
    finally:
        kafka_classes.unlock(lock)
    klog.open(tmp_path).close()


def test_klogs_lock_excludes_a_broker(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with klog.open(tmp_path, create=True) as logs:
        assert not kafka_classes.try_lock(lock)
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v")])
        assert not kafka_classes.try_lock(lock)
    assert kafka_classes.try_lock(lock)
    kafka_classes.unlock(lock)


def test_a_refused_second_open_keeps_the_first_lock(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    """A POSIX record lock would be lost when any descriptor of the file is closed."""
    lock = tmp_path / ".lock"
    with klog.open(tmp_path, create=True):
        with pytest.raises(AlreadyLocked):
            klog.open(tmp_path)
        lock.read_bytes()
        assert not kafka_classes.try_lock(lock)
