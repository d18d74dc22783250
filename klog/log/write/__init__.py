"""Appends, commits, flushes and truncations."""
