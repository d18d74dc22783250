"""Retention: which segments are deleted, how they are deleted, and how that is synchronized with the cleaner."""
