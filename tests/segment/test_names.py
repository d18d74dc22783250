"""Names of segment files: exactly 20 digits and a suffix."""

from __future__ import annotations

import pytest

from klog.segment import names


@pytest.mark.parametrize("offset", [0, 42, 2**31, 2**63 - 1])
@pytest.mark.parametrize("suffix", [*names.SEGMENT_SUFFIXES, names.SNAPSHOT])
def test_names_round_trip(offset: int, suffix: str) -> None:
    name = names.file_name(offset, suffix)
    assert len(name) == 20 + len(suffix)
    assert names.parse_name(name) == (offset, suffix)
    assert names.file_path("/d", offset, suffix) == f"/d/{name}"


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "abc.log",
        ".log",
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.swap",
        "00000000000000000000.txt",
        "0000000000000000000a.log",
        "-0000000000000000001.log",
        "000000000000000000001.log",
        "99999999999999999999.log",
        "00000000000000000000.log\n",
        "\u0660" * 20 + ".log\n",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_not_segment_files(name: str) -> None:
    assert names.parse_name(name) is None
