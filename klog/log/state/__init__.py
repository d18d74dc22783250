"""The in-memory state of a log: segments, producers, transactions, leader epochs, high watermark, metrics."""
