"""write: appends, commits, flushes and truncations."""
