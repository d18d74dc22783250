"""One batch to columns and to records, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", ["decode 100B", "decode 1KiB"], indirect=True)
def test_decode(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("contest", ["decode unread 100B", "decode unread 1KiB"], indirect=True)
def test_decode_unread(contest, index, measure):
    measure(contest, index)
