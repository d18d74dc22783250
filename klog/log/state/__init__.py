"""state: what a log knows of itself: segments, producers, transactions, leader epochs, high watermark, metrics."""
