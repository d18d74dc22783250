"""Reading: from an offset, a time, "earliest" or "latest" to batches and records."""
