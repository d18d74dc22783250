import platform
import random
import re
from pathlib import Path

import google_crc32c
import pytest

from klog.codec.crc32c import crc32c, kernels
from tests.support import reference

KERNELS = kernels()


def test_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_the_table_kernel_is_always_available() -> None:
    assert KERNELS[0] == "table"


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_agrees_with_one_bit_at_a_time(kernel: str) -> None:
    data = random.Random(1).randbytes(3000)
    for size in (*range(70), *range(120, 330), 511, 512, 767, 768, 769, 1024, 3000):
        assert crc32c(data[:size], kernel=kernel) == reference.crc32c(data[:size]), size


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_agrees_with_another_library(kernel: str) -> None:
    rng = random.Random(2)
    data = memoryview(rng.randbytes(1 << 20))
    for _ in range(100):
        start, size = rng.randrange(64), rng.choice((rng.randrange(1000), rng.randrange(100_000)))
        piece = data[start : start + size]
        assert crc32c(piece, kernel=kernel) == google_crc32c.value(bytes(piece)), (start, size)
    assert crc32c(data, kernel=kernel) == google_crc32c.value(bytes(data))


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_agrees_where_its_blocks_begin_and_end(kernel: str) -> None:
    """The streams of a block begin with 6 KiB, and there are blocks of 48,384 bytes with an end of less than 256."""
    data = random.Random(4).randbytes(150_000)
    for size in (
        *range(6140, 6530),
        *(block + n for block in (48_384, 96_768) for n in (-1, 0, 1, 63, 255, 256, 6144)),
    ):
        assert crc32c(data[:size], 5, kernel=kernel) == google_crc32c.extend(5, data[:size]), size


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_checksum_can_be_computed_in_pieces(kernel: str) -> None:
    data = random.Random(3).randbytes(40_000)
    whole = crc32c(data)
    for cut in (0, 1, 7, 767, 12_288, 39_999, 40_000):
        assert crc32c(data[cut:], crc32c(data[:cut], kernel=kernel), kernel=kernel) == whole


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_bit_counts(kernel: str) -> None:
    """A byte is changed at each position in the blocks and registers of a kernel."""
    size = 256 + 64 + 21
    blank = crc32c(bytes(size), kernel=kernel)
    seen = {blank}
    for bit in range(8 * size):
        data = bytearray(size)
        data[bit // 8] = 1 << bit % 8
        found = crc32c(data, kernel=kernel)
        assert found == crc32c(data, kernel="table")
        seen.add(found)
    assert len(seen) == 8 * size + 1


def test_kernels_are_numbered_from_slow_to_fast() -> None:
    """The last one that the processor supports is in use."""
    assert [name for name in ("table", "sse4.2", "vpclmul-256", "vpclmul-512") if name in KERNELS] == list(KERNELS)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs: an x86-64 processor")
def test_the_kernels_are_those_that_the_processor_supports() -> None:
    flags = set(re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())  # type: ignore[index]
    wide = {"sse4_2", "vpclmulqdq"}
    needed = {"table": set(), "sse4.2": {"sse4_2"}, "vpclmul-256": wide | {"avx2"}, "vpclmul-512": wide | {"avx512f"}}
    assert list(KERNELS) == [name for name, features in needed.items() if features <= flags]


def test_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="one of table"):
        crc32c(b"", kernel="abacus")
