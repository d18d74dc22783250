"""read: from an offset, a time or a word to batches and records."""
