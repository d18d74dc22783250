"""Two other codecs read klog's messages and write the same bytes again. Kafka's own classes: tests/interop."""

from __future__ import annotations

import importlib
import io
import pkgutil
import random
from typing import Any

import pytest

from klog.protocol import ApiKey, encode
from klog.protocol.layout import Layout
from tests.support import wire

_MESSAGES_PER_VERSION = 4


def test_kafka_python() -> None:
    protocol = pytest.importorskip("kafka.protocol", reason="needs: kafka-python")
    classes: dict[str, Any] = {}
    for found in pkgutil.walk_packages(protocol.__path__, "kafka.protocol."):
        if found.name.split(".")[2] in ("admin", "consumer", "metadata", "producer", "sasl"):
            module = importlib.import_module(found.name)
            classes |= {name: each for name, each in vars(module).items() if name.endswith(("Request", "Response"))}
    chance, compared = random.Random(29), set()
    for owner, layout, version in wire.versions():
        theirs = classes.get(layout.name.replace(".", ""))
        if theirs is None or version > theirs.max_version or layout.name == "ApiVersions.Response":
            continue  # kafka-python reads this response as version 0 if it has an error
        for _ in range(_MESSAGES_PER_VERSION):
            message = wire.make(owner, layout, version, chance)
            data = encode(message, version)
            read = theirs.decode(data, version=version)
            read._header = None  # encode() reads this attribute
            assert read.encode(version=version) == data, (layout.name, version, message)
            compared.add((layout.name, version))
    assert len(compared) > 400


def test_kio() -> None:
    pytest.importorskip("kio", reason="needs: kio")
    from kio.serial import entity_reader, entity_writer

    chance, compared = random.Random(29), set()
    for owner, layout, version in wire.versions():
        schema = _kio_schema(layout, version)
        if schema is None:
            continue
        for _ in range(_MESSAGES_PER_VERSION):
            message = wire.make(owner, layout, version, chance, small=True)
            data = encode(message, version)
            read, size = entity_reader(schema)(data, 0)
            out = io.BytesIO()
            entity_writer(schema)(out, read)
            assert (out.getvalue(), size) == (data, len(data)), (layout.name, version, message)
            compared.add((layout.name, version))
    assert len(compared) > 400


def _kio_schema(layout: Layout, version: int) -> Any:
    from kio import index

    message, _, section = layout.name.partition(".")
    loads = {"Request": index.load_request_schema, "Response": index.load_response_schema}
    if section not in loads:
        return None
    key = next(api for api in ApiKey if api.message == message)
    try:
        return loads[section](key.value, version)
    except index.KioIndexError:
        return None
