"""Benchmarks: each checks its result, then compares klog with a peer in the same run. See README.md."""
