"""One batch, built and read, by klog and by aiokafka: python -m bench.micro.batch"""

from __future__ import annotations

import pyperf

from bench.codec_contests import aiokafka_decode, aiokafka_encode
from bench.workloads import WORKLOADS, Workload
from klog import record

NAMES = ("10B", "100B", "1KiB")
_COUNT = 128  # a batch of about 16 KiB at 100 B, as Kafka's producers send


def main() -> None:
    runner = pyperf.Runner(program_args=("-m", "bench.micro.batch"))
    for name in NAMES:
        tuples = Workload(name, WORKLOADS[name].value_bytes, _COUNT).tuples()
        batch = aiokafka_encode(tuples)
        assert record.encode(tuples) == batch
        assert record.validate(batch) == len(aiokafka_decode(batch)) == _COUNT
        runner.bench_func(f"klog encode {name}", record.encode, tuples)
        runner.bench_func(f"aiokafka encode {name}", aiokafka_encode, tuples)
        runner.bench_func(f"klog columns {name}", record.columns, batch)
        runner.bench_func(f"klog validate {name}", record.validate, batch)
        runner.bench_func(f"aiokafka decode {name}", aiokafka_decode, batch)


if __name__ == "__main__":
    main()
