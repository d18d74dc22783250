"""KRaft's control records: fields and bytes, on-disk-format.md 3.6 and 10.7."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptBatch
from klog.protocol import decode_fields, encode_fields
from klog.record import encode, iter_records
from klog.record.control import marker
from klog.record.kraft import (
    Endpoint,
    KRaftRecord,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    read_kraft,
)
from tests.support.golden import HOME

T = 1_700_000_000_000
NAMES = {
    LeaderChange: "leader_change",
    SnapshotHeader: "snapshot_header",
    SnapshotFooter: "snapshot_footer",
    KRaftVersion: "kraft_version",
    KRaftVoters: "kraft_voters",
}
VOTERS = KRaftVoters(
    (
        Voter(1, uuid.UUID(int=7), (Endpoint("CONTROLLER", "host-1", 9093), Endpoint("", "", 65535)), 0, 1),
        Voter(2, uuid.UUID(int=2**128 - 1), (), 1, 1),
    )
)
EXAMPLES = [LeaderChange(1, (1, 2), (1,)), SnapshotHeader(T), SnapshotFooter(), KRaftVersion(1), VOTERS]

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
ids = st.lists(int32s, max_size=200).map(tuple)
texts = st.text(max_size=150)
endpoints = st.builds(Endpoint, texts, texts, st.integers(0, 65535))
voters = st.builds(Voter, int32s, st.uuids(), st.lists(endpoints, max_size=3).map(tuple), int16s, int16s)
kraft_records = st.one_of(
    st.builds(LeaderChange, int32s, ids, ids),
    st.builds(SnapshotHeader, st.integers(-(2**63), 2**63 - 1)),
    st.just(SnapshotFooter()),
    st.builds(KRaftVersion, int16s),
    st.builds(KRaftVoters, st.lists(voters, max_size=4).map(tuple)),
)


@pytest.mark.parametrize(
    ("example", "crc", "records"),
    [
        (EXAMPLES[0], "725319f0", "4400000008000000023000000000000103000000010000000002000200000001000000"),
        (EXAMPLES[1], "c7ac7804", "2a0000000800000003160000 0000018bcfe568000000"),
        (EXAMPLES[2], "8f6608e6", "1a000000080000000406 00000000"),
        (EXAMPLES[3], "a89c5586", "1e00000008000000050a 000000010000"),
    ],
)
def test_a_record_is_encoded_as_kafka_does(example: KRaftRecord, crc: str, records: str) -> None:
    data = encode([(*example.record(), T)], is_control=True, leader_epoch=1)
    assert data[61:].hex() == records.replace(" ", "")
    assert data[17:21].hex() == crc


def test_kafkas_records_are_encoded_to_the_same_bytes() -> None:
    kinds = set()
    for path in sorted((HOME / "internal" / "logdir" / "__cluster_metadata-0").iterdir()):
        if path.suffix in (".log", ".checkpoint"):
            for record in iter_records(path.read_bytes(), include_control=True):
                example = read_kraft(record.control_type, record.value)
                if example is not None:
                    assert example.record() == (record.key, record.value)
                    kinds.add(type(example))
    assert kinds == set(NAMES)


@pytest.mark.parametrize(
    ("example", "message", "fields"),
    [
        (
            EXAMPLES[0],
            "LeaderChangeMessage",
            {"leader_id": 1, "voters": [{"voter_id": 1}, {"voter_id": 2}], "granting_voters": [{"voter_id": 1}]},
        ),
        (EXAMPLES[1], "SnapshotHeaderRecord", {"last_contained_log_timestamp": T}),
        (EXAMPLES[2], "SnapshotFooterRecord", {}),
        (EXAMPLES[3], "KRaftVersionRecord", {"kraft_version": 1}),
        (
            VOTERS,
            "VotersRecord",
            {
                "voters": [
                    {
                        "voter_id": 1,
                        "voter_directory_id": "AAAAAAAAAAAAAAAAAAAABw",
                        "endpoints": [
                            {"name": "CONTROLLER", "host": "host-1", "port": 9093},
                            {"name": "", "host": "", "port": 65535},
                        ],
                        "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
                    },
                    {
                        "voter_id": 2,
                        "voter_directory_id": "_____________________w",
                        "endpoints": [],
                        "kraft_version_feature": {"min_supported_version": 1, "max_supported_version": 1},
                    },
                ]
            },
        ),
    ],
)
def test_the_values_are_messages_of_klog_protocol(
    example: KRaftRecord, message: str, fields: dict[str, object]
) -> None:
    """klog.record has a codec of its own for them, because it does not import klog.protocol."""
    _, value = example.record()
    assert decode_fields(message, 0, value) == ({"version": 0, **fields}, len(value))
    assert encode_fields(message, 0, fields) == value


@given(kraft_records)
def test_round_trip(example: KRaftRecord) -> None:
    data = encode([(*example.record(), T)], is_control=True)
    (record,) = iter_records(data, include_control=True)
    assert record.control_type == NAMES[type(example)]
    assert read_kraft(record.control_type, record.value) == example


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: NAMES[type(example)])
def test_truncated_bytes(example: KRaftRecord) -> None:
    _, value = example.record()
    for size in range(len(value)):
        with pytest.raises(CorruptBatch, match=NAMES[type(example)]):
            read_kraft(NAMES[type(example)], value[:size])
    with pytest.raises(CorruptBatch):
        read_kraft(NAMES[type(example)], None)
    with pytest.raises(CorruptBatch, match="version -1"):
        read_kraft(NAMES[type(example)], b"\xff\xff" + value[2:])


@given(st.sampled_from(EXAMPLES), st.binary(max_size=60))
def test_any_bytes_decode_or_raise_corruption(example: KRaftRecord, value: bytes) -> None:
    try:
        found = read_kraft(NAMES[type(example)], value)
    except CorruptBatch:
        return
    assert type(found) is type(example)


def test_invalid_lengths_allocate_nothing() -> None:
    for claimed in ("ffffffff0f", "ffffffffff", "808080808080"):
        with pytest.raises(CorruptBatch):
            read_kraft("kraft_voters", bytes.fromhex("0000" + claimed))


def test_newer_versions_tags_and_directories_are_skipped() -> None:
    tags = "02 05 03 aabbcc 09 00"  # two unknown fields
    assert read_kraft("kraft_version", bytes.fromhex(f"0007 0001 {tags}")) == KRaftVersion(1)
    directory = "00112233445566778899aabbccddeeff"
    with_directory = bytes.fromhex(f"0001 00000001 02 00000005{directory}{tags} 01 00")
    assert read_kraft("leader_change", with_directory) == LeaderChange(1, (5,), ())


def test_other_bytes_are_not_a_kraft_record() -> None:
    assert read_kraft("commit", marker("commit", 1)[1]) is None
    assert read_kraft("unknown", b"") is None
    assert read_kraft(None, b"value") is None
