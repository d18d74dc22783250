"""CRC-32C over 61 bytes to 1 MiB, by klog and by google-crc32c: python -m bench.micro.crc32c"""

from __future__ import annotations

import google_crc32c
import pyperf

from bench.workloads import noise
from klog.codec import crc32c

SIZES = {"128B": 128, "1KiB": 1 << 10, "16KiB": 1 << 14, "1MiB": 1 << 20}


def main() -> None:
    runner = pyperf.Runner(program_args=("-m", "bench.micro.crc32c"))
    for name, size in SIZES.items():
        data = noise(size)
        assert crc32c(data) == google_crc32c.value(data)
        runner.bench_func(f"klog crc32c {name}", crc32c, data)
        runner.bench_func(f"google crc32c {name}", google_crc32c.value, data)


if __name__ == "__main__":
    main()
