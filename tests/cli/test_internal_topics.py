"""cat and dump decode the records of Kafka's internal topics, and fail at none of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import klog
from tests.cli.test_verbs import ok, ok_json
from tests.support.golden import HOME
from tests.support.logs import one_log

LOG_DIR = HOME / "internal" / "logdir"


def test_a_broker_s_topics() -> None:
    (file,) = ok_json("dump", LOG_DIR / "bootstrap.checkpoint")["files"]
    records = [record for entry in file["entries"] for record in entry["records"]]
    assert records[1]["decoded"]["value"] == {"name": "metadata.version", "feature_level": 27}
    found = ok_json("cat", "--dir", LOG_DIR, "--topic", "__transaction_state")["records"]
    assert {record["decoded"]["key"]["transactional_id"] for record in found} == {"int-0"}
    text = ok("dump", LOG_DIR / "__consumer_offsets-0", "--offsets-decoder")
    assert 'key: {"type":"group_metadata","data":{"group":"group-classic1"}} payload: <DELETE>' in text
    raw = ok("dump", LOG_DIR / "__consumer_offsets-0", "--raw")
    assert "group_metadata" not in raw and "\\x00\\x02\\x00\\x0egroup-classic1" in raw


def test_records_that_cannot_be_decoded(tmp_path: Path) -> None:
    value = b"\1\x0e\0\1\2k" + struct.pack(">d", float("nan")) + b"\0\0"
    with klog.Log.open(tmp_path / "__cluster_metadata-0") as log:
        log.append([(None, value), (None, b"\1\x63\0")])
    with one_log(tmp_path, None, "__consumer_offsets") as log:
        log.append([(b"\0\x63", b"v"), (b"\0\1\0\1g\0\1t\0\0\0\3", None), (None, b"v"), (b"\0\1\0", b"v")])
    found = ok_json("cat", "--dir", tmp_path, "--topic", "__consumer_offsets")["records"]
    assert found[1]["decoded"]["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert [record.get("decode_problem", "").rpartition(": ")[2] for record in found] == [
        "unknown record type 99",
        "",
        "a record without a key",
        "the bytes end inside a value (position 2)",
    ]
    assert ok("cat", "--dir", tmp_path, "--topic", "__consumer_offsets").splitlines()[1].endswith("null")
    assert "payload: v (a record of __consumer_offsets cannot be decoded" in ok(
        "dump", tmp_path / "__consumer_offsets-0"
    )
    quota, unknown = ok_json("cat", "--dir", tmp_path, "--topic", "__cluster_metadata")["records"]
    assert quota["decoded"]["value"]["value"] == "nan" and "unknown record type 99" in unknown["decode_problem"]
    assert (
        "decoded"
        not in json.loads(ok("cat", "--dir", tmp_path, "--topic", "__cluster_metadata", "--raw", "--json"))["records"][
            0
        ]
    )
