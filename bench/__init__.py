"""Benchmarks: each checks its answer, then races klog against a peer in the same run. See README.md."""
