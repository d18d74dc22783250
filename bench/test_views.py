"""Views beside copies, checks beside columns and copies: see codec_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", ["views 100B", "views 1KiB"], indirect=True)
def test_views(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["validate 100B", "validate 1KiB"], indirect=True)
def test_validate(contest, index, measure):
    measure(contest, index)
