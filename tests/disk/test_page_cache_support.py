"""The helpers that make files cold and hot work: every test of the page cache depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page_cache import PAGE, kept_hot, make_cold, make_hot, resident_below, resident_pages


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_bytes(bytes(40 * PAGE + 1))
    return path


def test_a_file_becomes_cold_and_hot(path: Path) -> None:
    assert resident_pages(path) == [True] * 41
    make_cold(path)
    assert resident_pages(path) == [False] * 41
    make_hot(path)
    assert resident_pages(path) == [True] * 41


def test_only_the_given_range_becomes_hot(path: Path) -> None:
    make_cold(path)
    make_hot(path, 7 * PAGE, 2 * PAGE)
    assert [number for number, hot in enumerate(resident_pages(path)) if hot] == [7, 8]
    make_cold(path, 7 * PAGE, PAGE)
    assert [number for number, hot in enumerate(resident_pages(path)) if hot] == [8]


def locked_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck:"))
    return int(line.split()[1]) * 1024


def test_keep_hot_keeps_pages_until_it_ends(path: Path) -> None:
    make_cold(path)
    with kept_hot(path, 7 * PAGE, 2 * PAGE):
        assert [number for number, hot in enumerate(resident_pages(path)) if hot] == [7, 8]
        with pytest.raises(AssertionError, match="stays in the page cache"):
            make_cold(path)
        assert [number for number, hot in enumerate(resident_pages(path)) if hot] == [7, 8]
        assert locked_bytes() == 2 * PAGE
    make_cold(path)
    assert resident_pages(path) == [False] * 41


def test_checking_residency_caches_nothing(path: Path) -> None:
    make_cold(path)
    assert resident_below(path.parent) == resident_below(path.parent) == {str(path): [False] * 41}


def test_mapped_pages_in_use_cannot_be_made_cold(path: Path) -> None:
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[0] == 0
        with pytest.raises(AssertionError, match="stays in the page cache"):
            make_cold(path)
